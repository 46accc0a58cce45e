//! What a repository says of itself: the scripts, dependencies and targets its manifests declare, and the tools
//! it is worked on with.
//!
//! Every ecosystem has its own file. Those that are data (JSON, TOML, YAML) are read as such; a Gemfile, a
//! mix.exs and a Makefile are programs, and are only searched for the few forms everybody writes.

use serde_json::Value as Json;
use toml::Table;

use crate::profile::Condition;
use crate::sight::Sight;

/// Environments whose manifests are read.
const READ: [&str; 8] = ["node", "deno", "php", "python", "flutter", "ruby", "elixir", "rust"];

/// What npm puts where nobody wrote a test yet: a script that is none.
const NO_TEST: &str = "no test specified";

/// The files of one tree, as one environment sees them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manifests<'a> {
    pub(crate) sight: &'a Sight,
    /// Whose manifests count; everybody's where it has none we know.
    pub(crate) environment: Option<&'a str>,
}

impl Manifests<'_> {
    /// Whether one condition holds.
    pub(crate) fn fact(&self, condition: &Condition) -> bool {
        let any = |values: &[String], fact: &dyn Fn(&str) -> bool| values.iter().any(|value| fact(value));
        match condition {
            Condition::File(patterns) => any(patterns, &|pattern| self.sight.find(pattern).is_some()),
            Condition::Script(names) => any(names, &|name| self.has_script(name)),
            Condition::Requires(names) => any(names, &|name| self.requires(name)),
            Condition::Pyproject(tables) => {
                let pyproject = self.toml("pyproject.toml");
                any(tables, &|table| pyproject.as_ref().is_some_and(|all| table_at(all, table).is_some()))
            }
            Condition::Target(names) => any(names, &|name| self.has_target(name)),
            Condition::Program(names) => any(names, &is_on_path),
            Condition::Not(_) => false,
        }
    }

    fn is_for(&self, environment: &str) -> bool {
        let ours = self.environment.filter(|ours| READ.contains(ours));
        ours.is_none_or(|ours| ours == environment)
    }

    fn json(&self, file: &str) -> Option<Json> {
        serde_json::from_str(&self.sight.read(file)?).ok()
    }

    fn toml(&self, file: &str) -> Option<Table> {
        self.sight.read(file)?.parse().ok()
    }

    fn has_script(&self, name: &str) -> bool {
        let declared = |environment: &str, file: &str, table: &str| {
            let script =
                self.is_for(environment).then(|| self.json(file)).flatten()?.get(table)?.get(name)?.clone();
            Some(!script.as_str().is_some_and(|text| text.contains(NO_TEST)))
        };
        [
            ("node", "package.json", "scripts"),
            ("php", "composer.json", "scripts"),
            ("deno", "deno.json", "tasks"),
        ]
        .into_iter()
        .any(|(environment, file, table)| declared(environment, file, table) == Some(true))
    }

    fn requires(&self, name: &str) -> bool {
        let in_json = |file: &str, tables: &[&str]| {
            let manifest = self.json(file);
            tables.iter().any(|table| manifest.as_ref().is_some_and(|all| all[*table].get(name).is_some()))
        };
        let any = |environment: &str, declared: &dyn Fn() -> bool| self.is_for(environment) && declared();
        any("node", &|| {
            let tables = ["dependencies", "devDependencies", "peerDependencies", "optionalDependencies"];
            in_json("package.json", &tables)
        }) || any("php", &|| in_json("composer.json", &["require", "require-dev"]))
            || any("python", &|| self.python_requires(name))
            || any("flutter", &|| self.pubspec_requires(name))
            || any("ruby", &|| self.ruby_requires(name))
            || any("elixir", &|| {
                self.sight.read("mix.exs").is_some_and(|text| text.contains(&format!("{{:{name},")))
            })
            || any("rust", &|| self.cargo_requires(name))
    }

    fn python_requires(&self, name: &str) -> bool {
        let wanted = python_name(name);
        let listed = |text: &str| text.lines().any(|line| python_name(line) == wanted);
        let files = [
            "requirements.txt",
            "requirements-dev.txt",
            "requirements-test.txt",
            "dev-requirements.txt",
            "test-requirements.txt",
            "requirements/dev.txt",
            "requirements/test.txt",
        ];
        if files.iter().filter_map(|file| self.sight.read(file)).any(|text| listed(&text)) {
            return true;
        }
        let pipfile = self.toml("Pipfile").unwrap_or_default();
        let pyproject = self.toml("pyproject.toml").unwrap_or_default();
        // Lists of requirements, and maps from names to them.
        let lists = [
            "project.dependencies",
            "project.optional-dependencies",
            "dependency-groups",
            "tool.uv.dev-dependencies",
            "tool.pdm.dev-dependencies",
        ];
        let maps = ["tool.poetry.dependencies", "tool.poetry.dev-dependencies"];
        lists.iter().filter_map(|path| value_at(&pyproject, path)).any(|value| mentions(value, &wanted))
            || maps.iter().filter_map(|path| table_at(&pyproject, path)).any(|table| has_key(table, &wanted))
            || table_at(&pyproject, "tool.poetry.group").is_some_and(|groups| {
                groups
                    .values()
                    .filter_map(|group| table_at(group.as_table()?, "dependencies"))
                    .any(|table| has_key(table, &wanted))
            })
            || ["packages", "dev-packages"]
                .iter()
                .filter_map(|path| table_at(&pipfile, path))
                .any(|table| has_key(table, &wanted))
    }

    fn pubspec_requires(&self, name: &str) -> bool {
        let text = self.sight.read("pubspec.yaml").unwrap_or_default();
        let Ok(pubspec) = serde_yaml::from_str::<serde_yaml::Value>(&text) else { return false };
        ["dependencies", "dev_dependencies"]
            .iter()
            .any(|table| pubspec.get(table).and_then(|table| table.get(name)).is_some())
    }

    fn ruby_requires(&self, name: &str) -> bool {
        let declares = |line: &str| {
            let line = line.trim_start();
            let call = ["gem ", "gem(", ".add_dependency", ".add_development_dependency"];
            let called = call
                .iter()
                .any(|call| if call.starts_with('.') { line.contains(call) } else { line.starts_with(call) });
            called && [format!("\"{name}\""), format!("'{name}'")].iter().any(|quoted| line.contains(quoted))
        };
        let gemspec = self.sight.find("*.gemspec");
        let files = ["Gemfile", "gems.rb"].into_iter().map(str::to_owned).chain(gemspec);
        files.filter_map(|file| self.sight.read(&file)).any(|text| text.lines().any(declares))
    }

    fn cargo_requires(&self, name: &str) -> bool {
        let manifest = self.toml("Cargo.toml").unwrap_or_default();
        let tables = ["dependencies", "dev-dependencies", "build-dependencies", "workspace.dependencies"];
        tables.iter().filter_map(|path| table_at(&manifest, path)).any(|table| table.contains_key(name))
    }

    /// GNU make takes the first of these.
    pub(crate) fn makefile(&self) -> Option<&'static str> {
        ["GNUmakefile", "makefile", "Makefile"].into_iter().find(|file| self.sight.find(file).is_some())
    }

    fn has_target(&self, name: &str) -> bool {
        let text = self.makefile().and_then(|file| self.sight.read(file)).unwrap_or_default();
        // A rule: names, a colon that is not an assignment's, not in a recipe.
        text.lines().filter(|line| !line.starts_with(['\t', '#'])).any(|line| {
            line.split_once(':').is_some_and(|(targets, rest)| {
                !rest.trim_start_matches(':').starts_with('=')
                    && targets.split_whitespace().any(|target| target == name)
            })
        })
    }

    /// What a placeholder stands for here, and what a person should know of the choice.
    pub(crate) fn placeholder(&self, name: &str) -> Option<(&'static str, Option<String>)> {
        let wrapper = |file: &str, path, other| if self.sight.find(file).is_some() { path } else { other };
        match name {
            "manager" => Some(self.node_manager()),
            "python" => Some((self.python(), None)),
            "maven" => Some((wrapper("mvnw", "./mvnw", "mvn"), None)),
            "gradle" => Some((wrapper("gradlew", "./gradlew", "gradle"), None)),
            _ => None,
        }
    }

    fn node_manager(&self) -> (&'static str, Option<String>) {
        const LOCKS: [(&str, &str); 6] = [
            ("pnpm-lock.yaml", "pnpm"),
            ("yarn.lock", "yarn"),
            ("bun.lock", "bun"),
            ("bun.lockb", "bun"),
            ("package-lock.json", "npm"),
            ("npm-shrinkwrap.json", "npm"),
        ];
        let package = self.json("package.json");
        let named = package.as_ref().and_then(|package| package.get("packageManager")?.as_str());
        let named = named.and_then(|text| {
            let name = text.split('@').next()?;
            ["pnpm", "yarn", "bun", "npm"].into_iter().find(|known| *known == name)
        });
        if let Some(named) = named {
            return (named, None);
        }
        let locks: Vec<_> = LOCKS.iter().filter(|(file, _)| self.sight.find(file).is_some()).collect();
        let manager = locks.first().map_or("npm", |(_, manager)| *manager);
        let others = locks.iter().any(|(_, other)| *other != manager);
        let files = || locks.iter().map(|(file, _)| *file).collect::<Vec<_>>().join(", ");
        let note = others.then(|| {
            format!("there are lock files of several package managers ({}); {manager} is used", files())
        });
        (manager, note)
    }

    /// `--no-sync`: the environment is taken as it is, since nothing could be fetched for it.
    fn python(&self) -> &'static str {
        const UV: &str = "uv run --offline --no-sync python";
        const CHOICES: [(&str, &str); 5] = [
            ("uv.lock", UV),
            ("poetry.lock", "poetry run python"),
            ("pdm.lock", "pdm run python"),
            ("Pipfile.lock", "pipenv run python"),
            ("Pipfile", "pipenv run python"),
        ];
        const TABLES: [(&str, &str); 3] =
            [("tool.uv", UV), ("tool.poetry", "poetry run python"), ("tool.pdm", "pdm run python")];
        let pyproject = self.toml("pyproject.toml").unwrap_or_default();
        let by_file = CHOICES.iter().find(|(file, _)| self.sight.find(file).is_some());
        let by_table = || TABLES.iter().find(|(table, _)| table_at(&pyproject, table).is_some());
        if let Some((_, command)) = by_file.or_else(by_table) {
            return command;
        }
        match () {
            () if self.sight.find(".venv/bin").is_some() => ".venv/bin/python",
            () if self.sight.find("venv/bin").is_some() => "venv/bin/python",
            () => "python3",
        }
    }
}

fn value_at<'t>(table: &'t Table, path: &str) -> Option<&'t toml::Value> {
    let (inside, last) = path.rsplit_once('.').map_or((None, path), |(inside, last)| (Some(inside), last));
    match inside {
        Some(inside) => table_at(table, inside)?.get(last),
        None => table.get(last),
    }
}

fn table_at<'t>(table: &'t Table, path: &str) -> Option<&'t Table> {
    path.split('.').try_fold(table, |table, key| table.get(key)?.as_table())
}

/// Whether a list of requirements, or one of several such lists, names a package.
fn mentions(value: &toml::Value, wanted: &str) -> bool {
    match value {
        toml::Value::String(text) => python_name(text) == wanted,
        toml::Value::Array(items) => items.iter().any(|item| mentions(item, wanted)),
        toml::Value::Table(groups) => {
            groups.values().any(|group| group.is_array() && mentions(group, wanted))
        }
        _ => false,
    }
}

fn has_key(table: &Table, wanted: &str) -> bool {
    table.keys().any(|key| python_name(key) == wanted)
}

/// The name a requirement starts with, as packages are compared: `Py_Test[x]>=7` is `py-test`.
fn python_name(requirement: &str) -> String {
    let named = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    let name: String = requirement.trim_start().chars().take_while(named).collect();
    let parts: Vec<&str> = name.split(['-', '_', '.']).filter(|part| !part.is_empty()).collect();
    parts.join("-").to_ascii_lowercase()
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| {
        use std::os::unix::fs::PermissionsExt;
        let file = folder.join(program);
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn holds(environment: &str, files: &[(&str, &str)], condition: &Condition) -> bool {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
            fs::write(path, text).expect("a file");
        }
        let sight = Sight::of(folder.path()).expect("sight");
        Manifests { sight: &sight, environment: Some(environment) }.fact(condition)
    }

    fn requires(environment: &str, file: &str, text: &str, name: &str) -> bool {
        holds(environment, &[(file, text)], &Condition::Requires(vec![name.into()]))
    }

    #[test]
    fn a_declared_dependency_is_found_wherever_python_projects_declare_them() {
        for (file, text) in [
            ("requirements.txt", "flask\n# x\nPyTest>=7 ; python_version > '3'\n"),
            ("requirements-dev.txt", "pytest[x]==8\n"),
            ("pyproject.toml", "[project]\nname = 'x'\ndependencies = ['a', 'pytest ~= 8']\n"),
            ("pyproject.toml", "[project.optional-dependencies]\ntest = ['pytest']\n"),
            ("pyproject.toml", "[dependency-groups]\ndev = ['pytest', {include-group = 'x'}]\n"),
            ("pyproject.toml", "[tool.poetry.group.dev.dependencies]\npytest = '^8'\n"),
            ("pyproject.toml", "[tool.poetry.dev-dependencies]\npytest = {version = '*'}\n"),
            ("pyproject.toml", "[tool.uv]\ndev-dependencies = ['pytest>=8']\n"),
            ("pyproject.toml", "[tool.pdm.dev-dependencies]\ntest = ['pytest']\n"),
            ("Pipfile", "[dev-packages]\npytest = '*'\n"),
        ] {
            assert!(requires("python", file, text, "pytest"), "{file}: {text}");
            assert!(!requires("python", file, text, "pytest-cov"), "{file}: {text}");
            assert!(!requires("node", file, text, "pytest"), "{file}: {text}");
        }
        assert!(!requires("python", "requirements.txt", "pytest-cov\n# pytest\n", "pytest"));
        assert!(!requires("python", "pyproject.toml", "not [ toml pytest", "pytest"));
    }

    #[test]
    fn dependencies_of_other_environments_are_found_in_their_manifests() {
        for (environment, file, text, name) in [
            ("node", "package.json", r#"{"devDependencies": {"jest": "1"}}"#, "jest"),
            ("php", "composer.json", r#"{"require-dev": {"phpunit/phpunit": "^11"}}"#, "phpunit/phpunit"),
            ("ruby", "Gemfile", "group :test do\n  gem 'rspec', '~> 3'\nend\n", "rspec"),
            ("ruby", "x.gemspec", "s.add_development_dependency \"rspec\"\n", "rspec"),
            ("elixir", "mix.exs", "defp deps do [{:credo, \"~> 1\"}] end", "credo"),
            ("flutter", "pubspec.yaml", "dependencies:\n  flutter:\n    sdk: flutter\n", "flutter"),
            ("rust", "Cargo.toml", "[dev-dependencies]\nproptest = '1'\n", "proptest"),
        ] {
            assert!(requires(environment, file, text, name), "{file}");
            assert!(!requires(environment, file, text, "other"), "{file}");
        }
        assert!(!requires("ruby", "Gemfile", "# gem 'rspec'\n", "rspec"));
    }

    #[test]
    fn what_npm_puts_where_no_test_is_does_not_count_as_one() {
        let script =
            |text: &str| holds("node", &[("package.json", text)], &Condition::Script(vec!["test".into()]));
        assert!(script(r#"{"scripts": {"test": "vitest run"}}"#));
        assert!(!script(r#"{"scripts": {"test": "echo \"Error: no test specified\" && exit 1"}}"#));
        assert!(!script(r#"{"scripts": {"build": "x"}}"#));
        assert!(!script(r#"{"scripts": "test"}"#));
        assert!(!script("not json"));
    }

    #[test]
    fn a_make_target_is_a_rule_and_neither_an_assignment_nor_a_recipe() {
        let target =
            |text: &str| holds("make", &[("Makefile", text)], &Condition::Target(vec!["test".into()]));
        for text in ["test:\n\ttrue\n", "lint test: a\n", "test:: a\n", ".PHONY: x\ntest : deps\n"] {
            assert!(target(text), "{text}");
        }
        for text in
            ["test := 1\n", "tests:\n", "x:\n\ttest: y\n", "# test:\n", ".PHONY: test\n", "test ::= 1\n"]
        {
            assert!(!target(text), "{text}");
        }
    }

    #[test]
    fn tables_and_programs_are_found() {
        let pyproject = [("pyproject.toml", "[tool.pytest.ini_options]\naddopts = ''\n")];
        assert!(holds("python", &pyproject, &Condition::Pyproject(vec!["tool.pytest".into()])));
        assert!(!holds("python", &pyproject, &Condition::Pyproject(vec!["tool.ruff".into()])));
        assert!(holds("python", &[], &Condition::Program(vec!["no-such-program".into(), "sh".into()])));
        assert!(!holds("python", &[], &Condition::Program(vec!["no-such-program".into()])));
    }
}
