//! Project manifests: the scripts, dependencies and targets that they declare, and the `tools` that a repository uses.
//!
//! Every ecosystem has its own file. Files that are data (JSON, TOML, YAML) are parsed; a Gemfile, a mix.exs and a
//! Makefile are programs, and are only searched for a few common forms.

mod tools;

use std::cell::RefCell;

use serde_json::Value as Json;
use toml::Table;

use crate::profile::{WhenCondition, read_yaml};
use crate::project_files::{ProjectFiles, UnreadableFile};

/// Environments whose manifests are read.
const READ: [&str; 8] = ["node", "deno", "php", "python", "flutter", "ruby", "elixir", "rust"];

/// The text of npm's default test script, which tests nothing.
const NO_TEST: &str = "no test specified";

/// The manifests of one tree, for one environment.
#[derive(Debug)]
pub(crate) struct ProjectManifests<'a> {
    sight: &'a ProjectFiles,
    /// The environment whose manifests count; all manifests where we know none for it.
    environment: Option<&'a str>,
    /// The first manifest that exists and can't be understood.
    broken: RefCell<Option<BrokenManifest>>,
}

/// A manifest that can't be understood, so that its declarations are unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrokenManifest {
    pub(crate) file: String,
    pub(crate) reason: String,
}

impl<'a> ProjectManifests<'a> {
    pub(crate) fn new(sight: &'a ProjectFiles, environment: Option<&'a str>) -> Self {
        Self { sight, environment, broken: RefCell::new(None) }
    }

    /// Whether an answer lacks a file that could not be read.
    pub(crate) fn broken(&self) -> Option<BrokenManifest> {
        self.broken.borrow().clone()
    }

    /// Whether one condition holds.
    pub(crate) fn is_met(&self, condition: &WhenCondition) -> bool {
        let any = |values: &[String], fact: &dyn Fn(&str) -> bool| values.iter().any(|value| fact(value));
        match condition {
            WhenCondition::File(patterns) => any(patterns, &|pattern| self.sight.find(pattern).is_some()),
            WhenCondition::Script(names) => any(names, &|name| self.has_script(name)),
            WhenCondition::Requires(names) => any(names, &|name| self.requires(name)),
            WhenCondition::Pyproject(tables) => {
                let pyproject = self.toml("pyproject.toml");
                any(tables, &|table| pyproject.as_ref().is_some_and(|all| table_at(all, table).is_some()))
            }
            WhenCondition::Target(names) => any(names, &|name| self.has_target(name)),
            WhenCondition::Program(names) => any(names, &is_on_path),
            WhenCondition::Not(_) => false,
        }
    }

    fn is_for(&self, environment: &str) -> bool {
        let ours = self.environment.filter(|ours| READ.contains(ours));
        ours.is_none_or(|ours| ours == environment)
    }

    fn text(&self, file: &str) -> Option<String> {
        let text = self.sight.read(file).map_err(|UnreadableFile(reason)| reason);
        self.parse_or_note(file, text).flatten()
    }

    fn json(&self, file: &str) -> Option<Json> {
        let text = self.text(file)?;
        let text = if file.starts_with("deno.") { without_comments(&text) } else { text };
        self.parse_or_note(file, serde_json::from_str(&text))
    }

    fn toml(&self, file: &str) -> Option<Table> {
        self.parse_or_note(
            file,
            self.text(file)?.parse::<Table>().map_err(|error| error.message().to_owned()),
        )
    }

    fn parse_or_note<T, E: ToString>(&self, file: &str, read: Result<T, E>) -> Option<T> {
        read.map_err(|error| {
            let broken = BrokenManifest { file: file.to_owned(), reason: error.to_string() };
            self.broken.borrow_mut().get_or_insert(broken);
        })
        .ok()
    }

    fn has_script(&self, name: &str) -> bool {
        let manifests = [
            ("node", "package.json", "scripts"),
            ("php", "composer.json", "scripts"),
            ("deno", "deno.json", "tasks"),
            ("deno", "deno.jsonc", "tasks"),
        ];
        manifests.into_iter().filter(|(environment, ..)| self.is_for(environment)).any(|(_, file, table)| {
            let manifest = self.json(file).unwrap_or_default();
            let script = manifest.get(table).and_then(|scripts| scripts.get(name));
            script.is_some_and(|script| !script.as_str().is_some_and(|text| text.contains(NO_TEST)))
        })
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
                self.text("mix.exs").is_some_and(|text| text.contains(&format!("{{:{name},")))
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
        if files.iter().filter_map(|file| self.text(file)).any(|text| listed(&text)) {
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
        let text = self.text("pubspec.yaml").unwrap_or_default();
        let pubspec = self.parse_or_note("pubspec.yaml", read_yaml(&text));
        let pubspec = pubspec.unwrap_or_default();
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
        files.filter_map(|file| self.text(&file)).any(|text| text.lines().any(declares))
    }

    fn cargo_requires(&self, name: &str) -> bool {
        let manifest = self.toml("Cargo.toml").unwrap_or_default();
        let tables = ["dependencies", "dev-dependencies", "build-dependencies", "workspace.dependencies"];
        tables.iter().filter_map(|path| table_at(&manifest, path)).any(|table| table.contains_key(name))
    }

    /// The Makefile: GNU make takes the first of these.
    pub(crate) fn makefile(&self) -> Option<&'static str> {
        ["GNUmakefile", "makefile", "Makefile"].into_iter().find(|file| self.sight.find(file).is_some())
    }

    fn has_target(&self, name: &str) -> bool {
        let text = self.makefile().and_then(|file| self.text(file)).unwrap_or_default();
        // A rule: names, a colon that is not an assignment's, not in a recipe.
        text.lines().filter(|line| !line.starts_with(['\t', '#'])).any(|line| {
            line.split_once(':').is_some_and(|(targets, rest)| {
                !rest.trim_start_matches(':').starts_with('=')
                    && targets.split_whitespace().any(|target| target == name)
            })
        })
    }
}

/// Deno's JSON may have comments, and a comma after the last item of a list.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let length = match next {
            '"' => {
                let escaped =
                    |at: usize| rest[..at].bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1;
                let end = rest.char_indices().skip(1).find(|(at, c)| *c == '"' && !escaped(*at));
                let length = end.map_or(rest.len(), |(at, _)| at + 1);
                out.push_str(&rest[..length]);
                length
            }
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest[2..].find("*/").map_or(rest.len(), |end| end + 4),
            ']' | '}' => {
                let kept = out.trim_end().strip_suffix(',').map(str::len);
                out.truncate(kept.unwrap_or(out.len()));
                out.push(next);
                1
            }
            other => {
                out.push(other);
                other.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    out
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

/// The name at the start of a requirement, in its normal form: `Py_Test[x]>=7` is `py-test`.
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

    fn holds(environment: &str, files: &[(&str, &str)], condition: &WhenCondition) -> bool {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
            fs::write(path, text).expect("a file");
        }
        let sight = ProjectFiles::open(folder.path()).expect("sight");
        ProjectManifests::new(&sight, Some(environment)).is_met(condition)
    }

    fn requires(environment: &str, file: &str, text: &str, name: &str) -> bool {
        holds(environment, &[(file, text)], &WhenCondition::Requires(vec![name.into()]))
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
        let script = |text: &str| {
            holds("node", &[("package.json", text)], &WhenCondition::Script(vec!["test".into()]))
        };
        assert!(script(r#"{"scripts": {"test": "vitest run"}}"#));
        assert!(!script(r#"{"scripts": {"test": "echo \"Error: no test specified\" && exit 1"}}"#));
        assert!(!script(r#"{"scripts": {"build": "x"}}"#));
        assert!(!script(r#"{"scripts": "test"}"#));
        assert!(!script("not json"));
    }

    #[test]
    fn tasks_of_deno_are_found_between_comments() {
        let text =
            "{ // \"tasks\": {\n \"tasks\": { /* a, */ \"test\": \"x // \\\" */\", }, \"list\": [1, 2,\n], }";
        for file in ["deno.json", "deno.jsonc"] {
            assert!(holds("deno", &[(file, text)], &WhenCondition::Script(vec!["test".into()])), "{file}");
            assert!(!holds("deno", &[(file, text)], &WhenCondition::Script(vec!["list".into()])), "{file}");
        }
        assert_eq!(without_comments("{\"a\": \"ü,]\"}"), "{\"a\": \"ü,]\"}");
        assert_eq!(without_comments("\"open"), "\"open");
    }

    #[test]
    fn a_make_target_is_a_rule_and_neither_an_assignment_nor_a_recipe() {
        let target =
            |text: &str| holds("make", &[("Makefile", text)], &WhenCondition::Target(vec!["test".into()]));
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
        assert!(holds("python", &pyproject, &WhenCondition::Pyproject(vec!["tool.pytest".into()])));
        assert!(!holds("python", &pyproject, &WhenCondition::Pyproject(vec!["tool.ruff".into()])));
        assert!(holds("python", &[], &WhenCondition::Program(vec!["no-such-program".into(), "sh".into()])));
        assert!(!holds("python", &[], &WhenCondition::Program(vec!["no-such-program".into()])));
    }
}
