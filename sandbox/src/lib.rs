pub mod path;
pub mod scope;
