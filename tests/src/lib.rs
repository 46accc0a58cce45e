//! What the end-to-end and escape tests share: a program that attacks, and the means to see what it reached.

pub mod adversary;
pub mod collector;
pub mod dice;
pub mod engine;
pub mod ground;
pub mod listeners;
pub mod model;
pub mod processes;
pub mod programs;
pub mod projects;
pub mod queue;
pub mod repository;
pub mod screen;
pub mod system_v;
pub mod terminal;
pub mod tree;
pub mod user;
pub mod world;
