//! Which directories of a workspace are opened for writing.
//!
//! The operating system holds directories, not globs: a file that is made writable alone breaks every editor
//! that saves by renaming. So a scope is rounded up to the directories it needs, everything else stays
//! read-only, and what the rounding lets through is judged exactly by the harvest. This module is the
//! rounding: a pure function from globs, and from what directories there are, to a plan.

use std::collections::{BTreeMap, BTreeSet};

use crate::harvest::BaseLayers;
use crate::path::RelPath;
use crate::scope::{Glob, Scope};

/// What this module must know of a workspace.
pub(crate) trait DirectoryLookup {
    /// Whether the path is a directory, itself and not through a symbolic link.
    fn is_directory(&self, path: &RelPath) -> bool;
    /// Whether something that is not a directory is there.
    fn is_other(&self, path: &RelPath) -> bool;
    /// The names of the directories directly below.
    fn children(&self, path: &RelPath) -> Vec<Vec<u8>>;
}

impl DirectoryLookup for BaseLayers {
    fn is_directory(&self, path: &RelPath) -> bool {
        self.directory_exists(path)
    }

    fn is_other(&self, path: &RelPath) -> bool {
        self.leaf_exists(path)
    }

    fn children(&self, path: &RelPath) -> Vec<Vec<u8>> {
        self.directories_in(path)
    }
}

/// How far a directory is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum WritableDepth {
    /// Its own entries; the directories in it are not.
    Entries,
    /// Everything below.
    Whole,
}

/// Which directories are made, opened and closed again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct WritableDirectories {
    /// Missing directories the scope speaks of, parents first.
    pub(crate) make: Vec<RelPath>,
    /// Writable, sorted, so that a directory comes after the ones above it.
    pub(crate) open: Vec<RelPath>,
    /// Read-only although a directory above is writable, sorted.
    pub(crate) close: Vec<RelPath>,
}

impl WritableDirectories {
    /// The plan for a scope. `scratch` directories are open as a whole, even if the scope says less, unless they
    /// are denied.
    pub(crate) fn plan(scope: &Scope, scratch: &[RelPath], tree: &dyn DirectoryLookup) -> Self {
        let mut depths: BTreeMap<RelPath, WritableDepth> = BTreeMap::new();
        let mut open = |path: RelPath, depth: WritableDepth| {
            let entry = depths.entry(path).or_insert(depth);
            *entry = (*entry).max(depth);
        };
        for glob in &scope.write {
            let (directory, depth) = directory_of(glob);
            open(directory, depth);
        }
        for directory in scratch {
            open(directory.clone(), WritableDepth::Whole);
        }

        let mut make = BTreeSet::new();
        // What lies in a directory that is open as a whole needs no opening of its own, and a path that
        // runs through a file or a link can't be opened at all: the harvest has the last word on it.
        let mut reachable: BTreeMap<RelPath, WritableDepth> = BTreeMap::new();
        for (path, depth) in depths {
            let covered = path.ancestors().any(|above| reachable.get(&above) == Some(&WritableDepth::Whole));
            let blocked = tree.is_other(&path) || path.ancestors().any(|above| tree.is_other(&above));
            if blocked {
                continue;
            }
            for missing in std::iter::once(path.clone()).chain(path.ancestors()) {
                if !tree.is_directory(&missing) {
                    make.insert(missing);
                }
            }
            if !covered {
                reachable.insert(path, depth);
            }
        }

        let mut close = BTreeSet::new();
        for (path, depth) in &reachable {
            if *depth == WritableDepth::Entries {
                for child in tree.children(path) {
                    let child = path.join(&child);
                    if !reachable.contains_key(&child) {
                        close.insert(child);
                    }
                }
            }
        }
        for glob in &scope.deny {
            if let Some(directory) = whole_directory(glob) {
                let writable = std::iter::once(directory.clone())
                    .chain(directory.ancestors())
                    .any(|above| reachable.contains_key(&above));
                if writable && tree.is_directory(&directory) {
                    close.insert(directory);
                }
            }
        }
        // A directory the scope opens below a closed one stays open: its mount comes later and covers it. One
        // that is denied, or lies in a denied one, does not.
        let denied = |path: &RelPath| {
            scope.deny.iter().filter_map(whole_directory).any(|directory| path.is_within(&directory))
        };
        let open = reachable.into_keys().filter(|path| !denied(path)).collect();
        Self { make: make.into_iter().collect(), open, close: close.into_iter().collect() }
    }
}

/// The directory a write glob needs, and how far it must be open.
fn directory_of(glob: &Glob) -> (RelPath, WritableDepth) {
    let (prefix, rest) = glob.literal_prefix();
    match rest.as_slice() {
        // A path without wildcards is one file, and saving it by renaming needs its directory.
        [] => (prefix.parent().unwrap_or_default(), WritableDepth::Entries),
        [name] if !name.contains("**") => (prefix, WritableDepth::Entries),
        _ => (prefix, WritableDepth::Whole),
    }
}

/// The directory a deny glob closes as a whole, if it names one: `a/b`, `a/b/**`.
fn whole_directory(glob: &Glob) -> Option<RelPath> {
    let (prefix, rest) = glob.literal_prefix();
    match rest.as_slice() {
        [] | ["**"] if !prefix.is_root() => Some(prefix),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workspace given as a list of paths; those that end in a slash are directories.
    struct ListedTree(Vec<&'static str>);
    impl DirectoryLookup for ListedTree {
        fn is_directory(&self, path: &RelPath) -> bool {
            let prefix = format!("{path}/");
            path.is_root() || self.0.iter().any(|entry| entry.starts_with(&prefix))
        }
        fn is_other(&self, path: &RelPath) -> bool {
            let name = path.to_string();
            self.0.iter().any(|entry| *entry == name)
        }
        fn children(&self, path: &RelPath) -> Vec<Vec<u8>> {
            let prefix = if path.is_root() { String::new() } else { format!("{path}/") };
            let names: BTreeSet<_> = self
                .0
                .iter()
                .filter_map(|entry| entry.strip_prefix(&prefix)?.split_once('/').map(|(name, _)| name))
                .collect();
            names.into_iter().map(|name| name.as_bytes().to_vec()).collect()
        }
    }

    fn plan(write: &[&str], deny: &[&str], scratch: &[&str], tree: &[&'static str]) -> [Vec<String>; 3] {
        let scope = Scope::parse(write, deny).expect("globs parse");
        let scratch: Vec<_> =
            scratch.iter().map(|path| RelPath::parse(path.as_bytes()).expect("a path")).collect();
        let opening = WritableDirectories::plan(&scope, &scratch, &ListedTree(tree.to_vec()));
        [opening.make, opening.open, opening.close]
            .map(|paths| paths.iter().map(RelPath::to_string).collect())
    }

    #[test]
    fn a_tree_glob_opens_its_directory_and_nothing_else() {
        let [make, open, close] = plan(&["src/**"], &[], &[], &["src/a", "docs/b", "Cargo.toml"]);
        assert!(make.is_empty() && close.is_empty());
        assert_eq!(open, ["src"]);
    }

    #[test]
    fn a_single_file_opens_its_directory_and_closes_the_directories_in_it() {
        let [_, open, close] =
            plan(&["Cargo.toml", "src/**"], &[], &[], &["src/a", "docs/b", "web/c", "Cargo.toml"]);
        assert_eq!(open, [".", "src"]);
        assert_eq!(close, ["docs", "web"]);
    }

    #[test]
    fn a_missing_scope_directory_is_made_with_its_parents() {
        let [make, open, _] = plan(&["src/new/deep/**"], &[], &[], &["src/a"]);
        assert_eq!(make, ["src/new", "src/new/deep"]);
        assert_eq!(open, ["src/new/deep"]);
    }

    #[test]
    fn a_denied_directory_is_closed_again_and_its_pattern_cousins_are_left_to_the_harvest() {
        let [_, open, close] =
            plan(&["src/**"], &["src/secrets/**", "src/**/*.key"], &[], &["src/a", "src/secrets/k"]);
        assert_eq!(open, ["src"]);
        assert_eq!(close, ["src/secrets"]);
    }

    #[test]
    fn deny_wins_over_a_scope_directory_inside_it() {
        let [_, open, close] =
            plan(&["src/**", "src/secrets/x/**"], &["src/secrets"], &[], &["src/secrets/x/k"]);
        assert_eq!(open, ["src"]);
        assert_eq!(close, ["src/secrets"]);
    }

    #[test]
    fn scratch_is_open_whatever_the_scope_says() {
        let [make, open, _] = plan(&[], &[], &["target"], &["src/a"]);
        assert_eq!(make, ["target"]);
        assert_eq!(open, ["target"]);
    }

    #[test]
    fn a_scope_behind_a_file_opens_nothing() {
        let [make, open, _] = plan(&["a/b/**"], &[], &[], &["a"]);
        assert!(make.is_empty() && open.is_empty());
    }

    #[test]
    fn everything_opens_the_root_once() {
        let [_, open, close] = plan(&["**", "src/**"], &[], &["target"], &["src/a", "target/x"]);
        assert_eq!(open, ["."]);
        assert!(close.is_empty());
    }
}
