//! People work in the same repository, on the same branch and the same board, while agents do.

mod branch;
mod files;
mod history;
mod tasks;
mod worktree;
