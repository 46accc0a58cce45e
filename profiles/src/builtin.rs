//! The builtin profiles, which come with this program. They are files like any other, and can be copied into a
//! repository and changed there.

use std::path::Path;

use crate::profile::{Profile, ProfileName};

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

/// The text of a profile, for scaffolding.
pub fn text(name: &str) -> Option<&'static str> {
    FILES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

pub fn find(name: &ProfileName) -> Option<Profile> {
    let text = text(name.as_str())?;
    // A test parses every one of them.
    Profile::parse(Path::new(name.as_str()), text).ok().map(|parsed| parsed.profile)
}

/// Whether a profile does exactly what the builtin profile of its name does. A copy of a builtin profile that was scaffolded
/// into a repository needs no trust. Its description may differ: that decides nothing.
pub fn is_unchanged(profile: &Profile) -> bool {
    let described = |builtin: Profile| Profile { description: profile.description.clone(), ..builtin };
    find(&profile.name).is_some_and(|builtin| described(builtin) == *profile)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ProfileCommand;

    fn profile(text: &str) -> Profile {
        Profile::parse(Path::new("x.yml"), text).expect("a profile").profile
    }

    #[test]
    fn every_builtin_profile_is_understood_and_asks_for_nothing() {
        for name in names() {
            let parsed = Profile::parse(Path::new(name), text(name).expect("text")).expect(name);
            assert_eq!(parsed.notes, [""; 0], "{name}");
            assert_eq!(parsed.profile.name.as_str(), name);
            assert_eq!(parsed.profile.widens(), [], "{name} must work without trust");
            assert!(is_unchanged(&parsed.profile));
        }
    }

    #[test]
    fn a_copy_of_a_builtin_profile_is_known_whatever_it_says_of_itself() {
        let text = text("rust_strict").expect("there is one");
        let copy = profile(text);
        assert!(is_unchanged(&copy));
        assert!(is_unchanged(&Profile { description: "Ours".into(), ..copy.clone() }));
        let mut changed = copy.clone();
        changed.commands.push(ProfileCommand::unconditional("curl https://evil.example"));
        assert!(!is_unchanged(&changed));
        assert!(!is_unchanged(&Profile { env: vec!["TOKEN".into()], ..copy.clone() }));
        assert!(!is_unchanged(&profile("name: mine\ndescription: d\ncommands: [a]")));
    }
}
