//! Which environment a repository is (§10.2 of the specification), told by the files in its root.
//!
//! A manifest is the evidence, and each environment has a default profile. A repository may be several at once;
//! then all of them count. A Makefile counts only where nothing else does: beside a manifest it usually calls
//! what the manifest's own profile runs.

use crate::manifests::Manifests;
use crate::profile::{Condition, Name};
use crate::sight::Sight;

/// One environment: its name, its profile, and the files that tell.
struct Environment {
    name: &'static str,
    profile: &'static str,
    files: &'static [&'static str],
}

const ENVIRONMENTS: &[Environment] = &[
    Environment { name: "node", profile: "node_strict", files: &["package.json"] },
    Environment { name: "deno", profile: "deno_strict", files: &["deno.json", "deno.jsonc"] },
    Environment {
        name: "python",
        profile: "python_strict",
        files: &["pyproject.toml", "requirements.txt", "setup.py", "setup.cfg", "Pipfile"],
    },
    Environment { name: "rust", profile: "rust_strict", files: &["Cargo.toml"] },
    Environment { name: "go", profile: "go_strict", files: &["go.mod"] },
    Environment { name: "flutter", profile: "flutter_strict", files: &["pubspec.yaml"] },
    Environment { name: "java", profile: "java_maven", files: &["pom.xml"] },
    Environment {
        name: "java",
        profile: "java_gradle",
        files: &["build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"],
    },
    Environment { name: "ruby", profile: "ruby_strict", files: &["Gemfile", "gems.rb"] },
    Environment { name: "php", profile: "php_strict", files: &["composer.json"] },
    Environment {
        name: "dotnet",
        profile: "dotnet_strict",
        files: &["*.sln", "*.slnx", "*.csproj", "*.fsproj", "*.vbproj"],
    },
    Environment { name: "elixir", profile: "elixir_strict", files: &["mix.exs"] },
    Environment { name: "swift", profile: "swift_strict", files: &["Package.swift"] },
    Environment { name: "cmake", profile: "cmake", files: &["CMakeLists.txt"] },
];

/// An environment that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detected {
    pub environment: &'static str,
    /// The file that told.
    pub evidence: String,
    /// The profile for it.
    pub profile: &'static str,
}

/// Nothing in the root says what this is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no environment was recognised in the root of the repository ({} and a Makefile with a target `test` or \
     `check` were looked for); name a profile instead of `auto`",
    looked_for()
)]
pub struct NothingDetected;

fn looked_for() -> String {
    ENVIRONMENTS.iter().flat_map(|environment| environment.files).copied().collect::<Vec<_>>().join(", ")
}

/// Every environment the root shows, in the order of their table.
pub fn environments(sight: &Sight) -> Vec<Detected> {
    let found: Vec<Detected> = ENVIRONMENTS
        .iter()
        .filter_map(|environment| {
            let evidence = environment.files.iter().find_map(|file| sight.find(file))?;
            let (name, profile) = (environment.name, environment.profile);
            Some(Detected { environment: name, evidence, profile })
        })
        .collect();
    if !found.is_empty() {
        return found;
    }
    let manifests = Manifests::new(sight, Some("make"));
    let checks = Condition::Target(["check", "test"].map(str::to_owned).to_vec());
    match manifests.makefile() {
        Some(file) if manifests.fact(&checks) => {
            vec![Detected { environment: "make", evidence: file.to_owned(), profile: "make" }]
        }
        _ => Vec::new(),
    }
}

/// The profiles that `auto` stands for.
pub fn auto(sight: &Sight) -> Result<Vec<Name>, NothingDetected> {
    let names: Vec<Name> =
        environments(sight).iter().filter_map(|found| Name::parse(found.profile).ok()).collect();
    if names.is_empty() { Err(NothingDetected) } else { Ok(names) }
}

/// The default profile of an environment, by the name a person gives it.
pub fn profile_for(environment: &str) -> Option<&'static str> {
    let make = Environment { name: "make", profile: "make", files: &[] };
    ENVIRONMENTS.iter().chain([&make]).find(|known| known.name == environment).map(|known| known.profile)
}
