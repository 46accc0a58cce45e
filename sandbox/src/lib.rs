pub mod git;
pub mod harvest;
pub mod path;
pub mod scope;
