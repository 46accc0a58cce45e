//! How a repository's dependencies are installed: the setup that its lock file suggests.
//!
//! A workspace has only what git tracks. So a project with dependencies needs a setup before its checks can pass, and
//! its lock file says which. The setup is a suggestion: a person reads and trusts it before it runs.

use crate::project_files::ProjectFiles;

/// A setup for `[workspace]` in `agency.toml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuggestedSetup {
    pub command: String,
    /// The files that decide when it has to run again.
    pub cache_key: Vec<String>,
    /// The registries, as `HOST:PORT`.
    pub network: Vec<String>,
}

/// One package manager: the file that shows it, and what installs.
struct PackageManager {
    lock: &'static str,
    command: &'static str,
    /// Other files that decide, where they exist.
    also: &'static [&'static str],
    registry: &'static [&'static str],
}

const NPM: &[&str] = &["registry.npmjs.org:443"];
const YARN: &[&str] = &["registry.yarnpkg.com:443", "registry.npmjs.org:443"];
const PYPI: &[&str] = &["pypi.org:443", "files.pythonhosted.org:443"];

/// The more particular lock file first: a repository that moved from npm to pnpm may still have the old one.
const NODE: &[PackageManager] = &[
    PackageManager {
        lock: "pnpm-lock.yaml",
        command: "pnpm install --frozen-lockfile",
        also: &["package.json", "pnpm-workspace.yaml"],
        registry: NPM,
    },
    PackageManager {
        lock: "yarn.lock",
        command: "yarn install --frozen-lockfile",
        also: &["package.json", ".yarnrc.yml"],
        registry: YARN,
    },
    PackageManager {
        lock: "bun.lock",
        command: "bun install --frozen-lockfile",
        also: &["package.json"],
        registry: NPM,
    },
    PackageManager {
        lock: "bun.lockb",
        command: "bun install --frozen-lockfile",
        also: &["package.json"],
        registry: NPM,
    },
    PackageManager { lock: "package-lock.json", command: "npm ci", also: &["package.json"], registry: NPM },
    PackageManager { lock: "npm-shrinkwrap.json", command: "npm ci", also: &["package.json"], registry: NPM },
];

const PYTHON: &[PackageManager] = &[
    PackageManager {
        lock: "uv.lock",
        command: "uv sync --frozen",
        also: &["pyproject.toml"],
        registry: PYPI,
    },
    PackageManager {
        lock: "poetry.lock",
        command: "POETRY_VIRTUALENVS_IN_PROJECT=true poetry install --no-interaction",
        also: &["pyproject.toml"],
        registry: PYPI,
    },
    PackageManager { lock: "pdm.lock", command: "pdm sync", also: &["pyproject.toml"], registry: PYPI },
    PackageManager {
        lock: "Pipfile.lock",
        command: "PIPENV_VENV_IN_PROJECT=1 pipenv sync --dev",
        also: &["Pipfile"],
        registry: PYPI,
    },
];

/// Files of pip, in the order in which they are installed.
const REQUIREMENTS: &[&str] = &["requirements.txt", "requirements-dev.txt", "dev-requirements.txt"];

/// The setup for everything that the root declares; `None` where no lock file says how.
pub fn suggest_setup(files: &ProjectFiles) -> Option<SuggestedSetup> {
    let of = |managers: &'static [PackageManager]| managers.iter().find(|one| files.find(one.lock).is_some());
    let node = of(NODE).map(|manager| suggestion(manager, files));
    let python = of(PYTHON).map(|manager| suggestion(manager, files)).or_else(|| pip(files));
    [node, python].into_iter().flatten().reduce(SuggestedSetup::and)
}

fn suggestion(manager: &PackageManager, files: &ProjectFiles) -> SuggestedSetup {
    let also = manager.also.iter().filter(|file| files.find(file).is_some());
    SuggestedSetup {
        command: manager.command.to_owned(),
        cache_key: std::iter::once(&manager.lock).chain(also).map(|file| (*file).to_owned()).collect(),
        network: manager.registry.iter().map(|host| (*host).to_owned()).collect(),
    }
}

fn pip(files: &ProjectFiles) -> Option<SuggestedSetup> {
    let there: Vec<&str> = REQUIREMENTS.iter().copied().filter(|file| files.find(file).is_some()).collect();
    (!there.is_empty()).then(|| SuggestedSetup {
        command: format!("python3 -m venv .venv && .venv/bin/pip install -r {}", there.join(" -r ")),
        cache_key: there.iter().map(|file| (*file).to_owned()).collect(),
        network: PYPI.iter().map(|host| (*host).to_owned()).collect(),
    })
}

impl SuggestedSetup {
    fn and(mut self, other: Self) -> Self {
        self.command = format!("{} && {}", self.command, other.command);
        self.cache_key.extend(other.cache_key);
        self.network.extend(other.network);
        self
    }

    /// The line for `[workspace]` in `agency.toml`.
    pub fn to_toml(&self) -> String {
        let list = |items: &[String]| {
            items
                .iter()
                .map(|item| toml::Value::from(item.as_str()).to_string())
                .collect::<Vec<_>>()
                .join(", ")
        };
        format!(
            "setup = {{ command = {}, cache_key = [{}], network = [{}] }}",
            toml::Value::from(self.command.as_str()),
            list(&self.cache_key),
            list(&self.network)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(files: &[&str]) -> Option<SuggestedSetup> {
        let folder = tempfile::tempdir().expect("a folder");
        for file in files {
            std::fs::write(folder.path().join(file), "").expect("a file");
        }
        suggest_setup(&ProjectFiles::open(folder.path()).expect("files"))
    }

    #[test]
    fn a_lock_file_says_how_dependencies_are_installed() {
        for (files, command) in [
            (&["package-lock.json", "package.json"][..], "npm ci"),
            (&["package-lock.json", "pnpm-lock.yaml"], "pnpm install --frozen-lockfile"),
            (&["uv.lock", "requirements.txt"], "uv sync --frozen"),
            (&["requirements.txt"], "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt"),
            (&["package-lock.json", "uv.lock"], "npm ci && uv sync --frozen"),
        ] {
            assert_eq!(on(files).map(|setup| setup.command).as_deref(), Some(command), "{files:?}");
        }
        assert_eq!(on(&["Cargo.lock", "go.sum", "package.json"]), None);
    }

    #[test]
    fn the_line_for_agency_toml_is_valid_and_says_the_same() {
        let setup = on(&["package-lock.json", "package.json"]).expect("a setup");
        let read: toml::Table = setup.to_toml().parse().expect("TOML");
        assert_eq!(read["setup"]["command"].as_str(), Some("npm ci"));
        assert_eq!(read["setup"]["cache_key"].as_array().map(Vec::len), Some(2));
        assert_eq!(setup.network, ["registry.npmjs.org:443"]);
    }
}
