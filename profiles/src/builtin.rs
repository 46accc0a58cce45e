//! The profiles that come with this program. They are files like any other, and can be copied into a
//! repository and changed there.

use std::path::Path;

use crate::profile::{Name, Profile};

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        /// Name and text, in the order they are listed to people.
        const FILES: &[(&str, &str)] = &[$(($name, include_str!(concat!("../builtin/", $name, ".yml")))),*];
    };
}

files![
    "node_strict",
    "deno_strict",
    "python_strict",
    "rust_strict",
    "go_strict",
    "flutter_strict",
    "java_maven",
    "java_gradle",
    "ruby_strict",
    "php_strict",
    "dotnet_strict",
    "elixir_strict",
    "swift_strict",
    "cmake",
    "make",
];

pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The file of a profile, for those who scaffold.
pub fn text(name: &str) -> Option<&'static str> {
    FILES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

pub fn find(name: &Name) -> Option<Profile> {
    let text = text(name.as_str())?;
    // A test reads every one of them.
    Profile::parse(Path::new(name.as_str()), text).ok().map(|parsed| parsed.profile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_builtin_profile_is_understood_and_asks_for_nothing() {
        for name in names() {
            let parsed = Profile::parse(Path::new(name), text(name).expect("text")).expect(name);
            assert_eq!(parsed.notes, [""; 0], "{name}");
            assert_eq!(parsed.profile.name.as_str(), name);
            assert_eq!(parsed.profile.widens(), [], "{name} must work without trust");
            assert!(parsed.profile.same_as_builtin());
        }
    }
}
