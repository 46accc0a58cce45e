//! Resolves a profile to plain commands for one repository.
//!
//! A profile is for any repository; a resolved profile is for one. The project files decide the conditions,
//! placeholders are filled in, and every command has its own limits. Commands that are left out are noted, because a
//! missing check must not look like one that passed. The proof of an agent's work resolves the profile against the tree
//! from which the agent started: an agent that may edit `package.json` could otherwise remove the script that it does
//! not pass.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::builtin;
use crate::manifests::{BrokenManifest, ProjectManifests};
use crate::profile::{
    Platform, Profile, ProfileName, ProfileNetwork, ProfileOrigin, USUAL_MEMORY, USUAL_TIMEOUT,
};
use crate::project_files::ProjectFiles;

/// The version of the hashed format.
const VERSION: u32 = 1;

/// A profile, and where it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocatedProfile {
    pub profile: Profile,
    pub origin: ProfileOrigin,
    /// The text it was read from; a builtin one has none.
    pub text: Option<String>,
    /// Notes about parts of its file that were not understood.
    pub notes: Vec<String>,
}

impl LocatedProfile {
    /// Whether a person has to trust it before it is run: it is the repository's, and differs from the builtin profile
    /// of its name.
    pub fn needs_trust(&self) -> bool {
        matches!(self.origin, ProfileOrigin::Repository { .. }) && !builtin::is_unchanged(&self.profile)
    }
}

/// The commands to run, with everything decided. There is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedProfile {
    /// `rust_strict`, or `node_strict+rust_strict`.
    name: String,
    steps: Vec<ResolvedCommand>,
    notes: Vec<String>,
    /// Profiles that a person has to trust first.
    untrusted: Vec<UntrustedProfile>,
}

/// A profile of the repository's own that is not a copy of a builtin one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UntrustedProfile {
    pub path: PathBuf,
    /// The text that was read, and is to be trusted.
    pub text: String,
}

/// A profile of the repository's own that is not trusted with this text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file} is the repository's own profile, and is not trusted as it is")]
pub struct NotTrustedError {
    /// Relative to the root of the repository.
    pub file: String,
}

/// One command, and what it may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedCommand {
    /// The profile it comes from.
    pub profile: String,
    pub run: String,
    pub timeout: Duration,
    pub network: ProfileNetwork,
    /// Names of variables that are passed on.
    pub env: Vec<String>,
    /// Bytes.
    pub memory: u64,
    /// The image of its container, if it runs in one of its own.
    pub image: Option<String>,
    pub caches: Vec<String>,
}

/// What to do when a profile has no command for a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmptyProfilePolicy {
    /// It is an error.
    NoneMayBeEmpty,
    /// It is a note, as long as another profile has one.
    SomeMayBeEmpty,
}

/// Why there is nothing to run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error("the profile `{name}` is for {}, and this is {}", wanted.as_str(), Platform::here())]
    OtherPlatform { name: ProfileName, wanted: Platform },
    #[error("what the profile `{name}` has to check can't be told: {file} can't be understood: {reason}")]
    Broken { name: ProfileName, file: String, reason: String },
    #[error("the profile `{name}` has no command for this repository; looked for: {}", looked_for.join("; "))]
    NothingApplies { name: String, looked_for: Vec<String> },
}

/// Decides everything that depends on the repository.
pub fn resolve(
    found: &[LocatedProfile],
    sight: &ProjectFiles,
    manner: EmptyProfilePolicy,
) -> Result<ResolvedProfile, ResolveError> {
    let mut resolved = ResolvedProfile {
        name: found.iter().map(|one| one.profile.name.as_str()).collect::<Vec<_>>().join("+"),
        steps: Vec::new(),
        notes: Vec::new(),
        untrusted: Vec::new(),
    };
    let mut looked_for = Vec::new();
    for one in found {
        let profile = &one.profile;
        if !profile.platform.is_here() {
            return Err(ResolveError::OtherPlatform { name: profile.name.clone(), wanted: profile.platform });
        }
        if let ProfileOrigin::Repository { path } = &one.origin
            && one.needs_trust()
        {
            let text = one.text.clone().unwrap_or_default();
            resolved.untrusted.push(UntrustedProfile { path: path.clone(), text });
        }
        resolved.notes.extend(one.notes.iter().cloned());
        let before = resolved.steps.len();
        let missing = resolved.add(one, sight)?;
        if resolved.steps.len() == before {
            let name = profile.name.to_string();
            if manner == EmptyProfilePolicy::NoneMayBeEmpty {
                return Err(ResolveError::NothingApplies { name, looked_for: missing });
            }
            resolved.notes.push(format!("{name} has no command for this repository"));
        }
        looked_for.extend(missing);
    }
    if resolved.steps.is_empty() {
        return Err(ResolveError::NothingApplies { name: resolved.name, looked_for });
    }
    Ok(resolved)
}

impl ResolvedProfile {
    /// Adds the commands of a profile that apply, and returns what the others would have needed.
    fn add(&mut self, found: &LocatedProfile, sight: &ProjectFiles) -> Result<Vec<String>, ResolveError> {
        let profile = &found.profile;
        let manifests = ProjectManifests::new(sight, profile.environment.as_deref());
        let mut missing = Vec::new();
        for command in &profile.commands {
            let (run, notes) = fill_in(&command.run, &manifests);
            if !command.when.holds(&mut |condition| manifests.is_met(condition)) {
                missing.push(command.when.to_string());
                self.notes.push(format!("left out: `{run}`, which is for {}", command.when));
                continue;
            }
            for note in notes {
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
            }
            self.steps.push(ResolvedCommand {
                profile: profile.name.to_string(),
                run,
                timeout: command.timeout.or(profile.timeout).unwrap_or(USUAL_TIMEOUT),
                network: command.network.clone().unwrap_or_else(|| profile.network.clone()),
                env: profile.env.clone(),
                memory: profile.memory.unwrap_or(USUAL_MEMORY),
                image: profile.image.clone(),
                caches: profile.caches.clone(),
            });
        }
        match manifests.broken() {
            // Its contents are unknown, and an agent must not pass by breaking it.
            Some(BrokenManifest { file, reason }) => {
                Err(ResolveError::Broken { name: profile.name.clone(), file, reason })
            }
            None => Ok(missing),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn steps(&self) -> &[ResolvedCommand] {
        &self.steps
    }

    /// Notes for a person: what was ignored, chosen and left out.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The profiles that a person has to trust before this may be run.
    pub fn untrusted(&self) -> &[UntrustedProfile] {
        &self.untrusted
    }

    /// Checks that each of the repository's own profiles is trusted. `is_trusted` gets the path of a profile, relative to
    /// the root of the repository, and its text.
    pub fn check_trust(
        &self,
        root: &Path,
        is_trusted: impl Fn(&str, &str) -> bool,
    ) -> Result<(), NotTrustedError> {
        for own in &self.untrusted {
            let file = own.path.strip_prefix(root).unwrap_or(&own.path).to_string_lossy().into_owned();
            if !is_trusted(&file, &own.text) {
                return Err(NotTrustedError { file });
            }
        }
        Ok(())
    }

    /// The SHA-256 of everything that decides what is run, in hexadecimal.
    pub fn hash(&self) -> String {
        // Fields are written in the order they are declared, which is that of their names: one text for one
        // meaning.
        #[derive(Serialize)]
        struct Canonical<'a> {
            commands: Vec<CanonicalCommand<'a>>,
            name: &'a str,
            version: u32,
        }
        #[derive(Serialize)]
        struct CanonicalCommand<'a> {
            #[serde(skip_serializing_if = "<[String]>::is_empty")]
            caches: &'a [String],
            env: &'a [String],
            // A profile without images keeps the hash that it had before images existed.
            #[serde(skip_serializing_if = "Option::is_none")]
            image: Option<&'a str>,
            memory: u64,
            network: String,
            profile: &'a str,
            run: &'a str,
            timeout_ms: u128,
        }
        let commands = self.steps.iter().map(|step| CanonicalCommand {
            caches: &step.caches,
            env: &step.env,
            image: step.image.as_deref(),
            memory: step.memory,
            network: match &step.network {
                ProfileNetwork::None => "none".into(),
                ProfileNetwork::Full => "full".into(),
                ProfileNetwork::Hosts(list) => list.to_string(),
            },
            profile: &step.profile,
            run: &step.run,
            timeout_ms: step.timeout.as_millis(),
        });
        let canonical = Canonical { commands: commands.collect(), name: &self.name, version: VERSION };
        // Strings and numbers always become JSON.
        let text = serde_json::to_vec(&canonical).unwrap_or_default();
        Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Fills in `{manager}` and the other placeholders. Other text in braces is the shell's, and so is `${manager}`.
fn fill_in(run: &str, manifests: &ProjectManifests<'_>) -> (String, Vec<String>) {
    let (mut filled, mut notes) = (String::new(), Vec::new());
    let mut rest = run;
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        filled.push_str(before);
        let name = from[1..].split_once('}').map(|(name, _)| name).filter(|_| !filled.ends_with('$'));
        match name.and_then(|name| Some((name, manifests.placeholder(name)?))) {
            Some((name, (value, note))) => {
                filled.push_str(value);
                notes.extend(note);
                rest = &from[name.len() + 2..];
            }
            None => {
                filled.push('{');
                rest = &from[1..];
            }
        }
    }
    filled.push_str(rest);
    (filled, notes)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn found(text: &str) -> LocatedProfile {
        let parsed = Profile::parse(Path::new("x.yml"), text).expect("a profile");
        LocatedProfile {
            profile: parsed.profile,
            origin: ProfileOrigin::Builtin,
            text: None,
            notes: parsed.notes,
        }
    }

    fn on(files: &[&str], text: &str) -> Result<ResolvedProfile, ResolveError> {
        let folder = tempfile::tempdir().expect("a folder");
        for file in files {
            std::fs::write(folder.path().join(file), "{}").expect("a file");
        }
        resolve(
            &[found(text)],
            &ProjectFiles::open(folder.path()).expect("sight"),
            EmptyProfilePolicy::NoneMayBeEmpty,
        )
    }

    #[test]
    fn placeholders_are_filled_in_and_what_is_the_shells_stays() {
        let text =
            "name: x\ndescription: d\ncommands:\n  - \"{manager} run a{b,c} ${manager} {x} {maven} {\"\n";
        let resolved = on(&["pnpm-lock.yaml", "mvnw"], text).expect("resolves");
        assert_eq!(resolved.steps()[0].run, "pnpm run a{b,c} ${manager} {x} ./mvnw {");
    }

    #[test]
    fn a_command_takes_its_profiles_limits_where_it_has_none() {
        let text = "name: x\ndescription: d\ntimeout: 1m\nnetwork: full\nenv: [A]\nmemory: 1GiB\ncommands:\n\
                    - a\n- {run: b, timeout: 2m, network: none}\n";
        let resolved = on(&[], text).expect("resolves");
        let [a, b] = resolved.steps() else { panic!("two commands") };
        assert_eq!((a.timeout.as_secs(), &a.network, a.memory), (60, &ProfileNetwork::Full, 1 << 30));
        assert_eq!((b.timeout.as_secs(), &b.network), (120, &ProfileNetwork::None));
        assert_eq!(b.env, ["A"]);
        let usual = on(&[], "name: x\ndescription: d\ncommands: [a]").expect("resolves");
        assert_eq!((usual.steps()[0].timeout, usual.steps()[0].memory), (USUAL_TIMEOUT, USUAL_MEMORY));
    }

    #[test]
    fn nothing_to_check_is_an_error_that_says_what_was_looked_for() {
        let text = "name: x\ndescription: d\nenvironment: node\ncommands:\n\
                    - {run: a, when: {script: lint}}\n- {run: b, when: {file: [c, d]}}\n";
        let error = on(&["package.json"], text).expect_err("nothing applies").to_string();
        assert_eq!(
            error,
            "the profile `x` has no command for this repository; looked for: a script `lint`; a file `c` or `d`"
        );
        let resolved = on(&["d"], text).expect("resolves");
        assert_eq!(resolved.notes(), ["left out: `a`, which is for a script `lint`"]);
    }

    #[test]
    fn a_profile_for_another_platform_is_refused_by_name() {
        let error =
            on(&[], "name: mac\ndescription: d\nplatform: darwin\ncommands: [a]").expect_err("refused");
        assert_eq!(error.to_string(), "the profile `mac` is for darwin, and this is linux");
        assert!(on(&[], "name: any\ndescription: d\nplatform: any\ncommands: [a]").is_ok());
    }

    #[test]
    fn the_hash_is_of_what_is_run_and_of_nothing_else() {
        let text = "name: x\ndescription: d\ncommands: [a, b]";
        let hash = |text: &str| on(&[], text).expect("resolves").hash();
        assert_eq!(hash(text), hash("name: x\ndescription: other\ncommands:\n  - a\n  - run: b\n"));
        assert_eq!(hash(text).len(), 64);
        for other in [
            "name: y\ndescription: d\ncommands: [a, b]",
            "name: x\ndescription: d\ncommands: [b, a]",
            "name: x\ndescription: d\ncommands: [a, b]\ntimeout: 1m",
            "name: x\ndescription: d\ncommands: [a, b]\nnetwork: full",
            "name: x\ndescription: d\ncommands: [a, b]\nenv: [A]",
            "name: x\ndescription: d\ncommands: [a, b]\nmemory: 1GiB",
            "name: x\ndescription: d\ncommands: [a, b]\nimage: rust:1",
            "name: x\ndescription: d\ncommands: [a, b]\ncaches: cargo",
        ] {
            assert_ne!(hash(text), hash(other), "{other}");
        }
    }
}
