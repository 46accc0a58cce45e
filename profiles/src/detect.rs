//! Detects the environments of a repository (§10.2 of the specification) by the files in its root.
//!
//! A manifest is the evidence, and each environment has a default profile. A repository may have several environments;
//! then all of them count. A Makefile counts only where there is no manifest: beside one it usually calls the commands
//! of the manifest's own profile.

use crate::manifests::ProjectManifests;
use crate::profile::{ProfileName, WhenCondition};
use crate::project_files::ProjectFiles;

/// One environment: its name, its profile, and the files that show it.
struct EnvironmentRule {
    name: &'static str,
    profile: &'static str,
    files: &'static [&'static str],
}

const ENVIRONMENTS: &[EnvironmentRule] = &[
    EnvironmentRule { name: "node", profile: "node_strict", files: &["package.json"] },
    EnvironmentRule { name: "deno", profile: "deno_strict", files: &["deno.json", "deno.jsonc"] },
    EnvironmentRule {
        name: "python",
        profile: "python_strict",
        files: &["pyproject.toml", "requirements.txt", "setup.py", "setup.cfg", "Pipfile"],
    },
    EnvironmentRule { name: "rust", profile: "rust_strict", files: &["Cargo.toml"] },
    EnvironmentRule { name: "go", profile: "go_strict", files: &["go.mod"] },
    EnvironmentRule { name: "flutter", profile: "flutter_strict", files: &["pubspec.yaml"] },
    EnvironmentRule { name: "java", profile: "java_maven", files: &["pom.xml"] },
    EnvironmentRule {
        name: "java",
        profile: "java_gradle",
        files: &["build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"],
    },
    EnvironmentRule { name: "ruby", profile: "ruby_strict", files: &["Gemfile", "gems.rb"] },
    EnvironmentRule { name: "php", profile: "php_strict", files: &["composer.json"] },
    EnvironmentRule {
        name: "dotnet",
        profile: "dotnet_strict",
        files: &["*.sln", "*.slnx", "*.csproj", "*.fsproj", "*.vbproj"],
    },
    EnvironmentRule { name: "elixir", profile: "elixir_strict", files: &["mix.exs"] },
    EnvironmentRule { name: "swift", profile: "swift_strict", files: &["Package.swift"] },
    EnvironmentRule { name: "cmake", profile: "cmake", files: &["CMakeLists.txt"] },
];

/// An environment that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetectedEnvironment {
    pub environment: &'static str,
    /// The file that shows it.
    pub evidence: String,
    /// The profile for it.
    pub profile: &'static str,
}

/// No file in the root shows an environment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no environment was recognised in the root of the repository: there is no package.json, pyproject.toml, Cargo.toml, \
     go.mod or Makefile with a target `test` or `check`, for example; name a profile instead of `auto`"
)]
pub struct NothingDetected;

/// Every environment that the root shows, in the order of the table.
pub fn detect_environments(sight: &ProjectFiles) -> Vec<DetectedEnvironment> {
    let found: Vec<DetectedEnvironment> = ENVIRONMENTS
        .iter()
        .filter_map(|environment| {
            let evidence = environment.files.iter().find_map(|file| sight.find(file))?;
            let (name, profile) = (environment.name, environment.profile);
            Some(DetectedEnvironment { environment: name, evidence, profile })
        })
        .collect();
    if !found.is_empty() {
        return found;
    }
    let manifests = ProjectManifests::new(sight, Some("make"));
    let checks = WhenCondition::Target(["check", "test"].map(str::to_owned).to_vec());
    match manifests.makefile() {
        Some(file) if manifests.is_met(&checks) => {
            vec![DetectedEnvironment { environment: "make", evidence: file.to_owned(), profile: "make" }]
        }
        _ => Vec::new(),
    }
}

/// The profiles that `auto` stands for.
pub fn detect_profiles(sight: &ProjectFiles) -> Result<Vec<ProfileName>, NothingDetected> {
    let names: Vec<ProfileName> = detect_environments(sight)
        .iter()
        .filter_map(|found| ProfileName::parse(found.profile).ok())
        .collect();
    if names.is_empty() { Err(NothingDetected) } else { Ok(names) }
}

/// The default profile of an environment, by the name a person gives it.
pub fn profile_for(environment: &str) -> Option<&'static str> {
    let make = EnvironmentRule { name: "make", profile: "make", files: &[] };
    ENVIRONMENTS.iter().chain([&make]).find(|known| known.name == environment).map(|known| known.profile)
}
