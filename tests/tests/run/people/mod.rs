//! People work in the same repository, on the same branch and the same board, while agents do.

mod branch;
mod files;
mod tasks;
mod worktree;
