//! The shape of the project, held: which crate and which module may know which, where unsafe code and printing may be,
//! how large a file, a function and a vocabulary may get, and that what the documents say is there.

mod crates;
mod modules;
mod opening;
mod pages;
mod sizes;
mod source;

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").to_owned()
}

/// The crates that people run, by folder.
const CRATES: &[&str] = &["runner", "supervisor", "landing", "profiles", "protocols", "sandbox"];

/// Every Rust file below a folder, with its text.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut waiting = vec![root().join(folder)];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("text");
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty(), "{folder} has no sources");
    found
}
