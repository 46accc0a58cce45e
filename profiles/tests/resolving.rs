//! Every builtin profile on folders such as people have.

mod support;

use agency_profiles::builtin;
use agency_profiles::library::{LibraryError, ProfileLibrary};
use agency_profiles::project_files::ProjectFiles;
use support::Place;

fn commands(profile: &str, files: &[(&str, &str)]) -> Vec<String> {
    let place = Place::new(files);
    let resolved =
        ProfileLibrary::default().resolve(profile, &ProjectFiles::open(place.path()).expect("sight"));
    let resolved = resolved.unwrap_or_else(|error| panic!("{profile}: {error}"));
    resolved.steps().iter().map(|step| step.run.clone()).collect()
}

fn nothing(profile: &str, files: &[(&str, &str)]) -> String {
    let place = Place::new(files);
    match ProfileLibrary::default().resolve(profile, &ProjectFiles::open(place.path()).expect("sight")) {
        Err(error @ LibraryError::Resolve(_)) => error.to_string(),
        other => panic!("{profile}: {other:?}"),
    }
}

const SCRIPTS: &str =
    r#"{"scripts": {"typecheck": "tsc", "lint": "eslint .", "test": "vitest", "build": "vite"}}"#;

#[test]
fn node_scripts_are_run_by_the_manager_the_repository_uses() {
    for (manager, more) in [
        ("npm", None),
        ("npm", Some(("package-lock.json", "{}"))),
        ("npm", Some(("npm-shrinkwrap.json", "{}"))),
        ("pnpm", Some(("pnpm-lock.yaml", ""))),
        ("yarn", Some(("yarn.lock", ""))),
        ("bun", Some(("bun.lock", ""))),
        ("bun", Some(("bun.lockb", ""))),
    ] {
        let files: Vec<_> = [("package.json", SCRIPTS)].into_iter().chain(more).collect();
        let expected = ["typecheck", "lint", "test", "build"].map(|script| format!("{manager} run {script}"));
        assert_eq!(commands("node_strict", &files), expected);
    }
    let named = |manager: &str| format!(r#"{{"packageManager": "{manager}", "scripts": {{"test": "x"}}}}"#);
    let with = |package: &str| commands("node_strict", &[("package.json", package), ("yarn.lock", "")]);
    assert_eq!(with(&named("pnpm@9.1.0+sha512.x")), ["pnpm run test"]);
    assert_eq!(with(&named("evil; rm -rf /")), ["yarn run test"]);
}

#[test]
fn lock_files_of_several_managers_are_noted() {
    let place = Place::new(&[("package.json", SCRIPTS), ("pnpm-lock.yaml", ""), ("package-lock.json", "")]);
    let resolved = ProfileLibrary::default()
        .resolve("node_strict", &ProjectFiles::open(place.path()).expect("sight"))
        .expect("resolves");
    assert_eq!(resolved.steps()[0].run, "pnpm run typecheck");
    let noted: Vec<_> = resolved.notes().iter().filter(|note| note.contains("lock files")).collect();
    assert_eq!(
        noted,
        [
            "there are lock files of several package managers (pnpm-lock.yaml, package-lock.json); pnpm is used"
        ]
    );
}

#[test]
fn python_tools_are_run_in_the_projects_environment() {
    let pytest = ("requirements-dev.txt", "pytest\n");
    for (file, text, python) in [
        ("requirements.txt", "", "python3"),
        ("uv.lock", "", "uv run --offline --no-sync python"),
        ("poetry.lock", "", "poetry run python"),
        ("pdm.lock", "", "pdm run python"),
        ("Pipfile.lock", "", "pipenv run python"),
        ("Pipfile", "", "pipenv run python"),
        ("pyproject.toml", "[tool.uv]\n", "uv run --offline --no-sync python"),
        ("pyproject.toml", "[tool.poetry]\n", "poetry run python"),
        ("pyproject.toml", "[tool.pdm]\n", "pdm run python"),
        (".venv/bin/python", "", ".venv/bin/python"),
        ("venv/bin/python", "", "venv/bin/python"),
    ] {
        assert_eq!(
            commands("python_strict", &[(file, text), pytest]),
            [format!("{python} -m pytest")],
            "{file} {text}"
        );
    }
}

#[test]
fn python_tests_are_pytests_where_there_is_pytest_and_unittests_elsewhere() {
    let run = |files: &[(&str, &str)]| commands("python_strict", files);
    let pytest = ["python3 -m pytest"];
    assert_eq!(run(&[("pyproject.toml", "[tool.pytest.ini_options]\n")]), pytest);
    for file in ["pytest.ini", "conftest.py", "tests/conftest.py"] {
        assert_eq!(run(&[("setup.py", ""), (file, ""), ("tests/test_a.py", "")]), pytest, "{file}");
    }
    assert_eq!(run(&[("setup.py", ""), ("tests/test_a.py", "")]), ["python3 -m unittest discover -s tests"]);
    let package = [("setup.py", ""), ("tests/test_a.py", ""), ("tests/__init__.py", "")];
    assert_eq!(run(&package), ["python3 -m unittest discover -s tests -t ."]);
    assert_eq!(run(&[("setup.py", ""), ("test_a.py", "")]), ["python3 -m unittest discover"]);
    // Without a test file, unittest would have nothing to fail on.
    let error =
        nothing("python_strict", &[("setup.py", ""), ("tests/__init__.py", ""), ("tests/helper.py", "")]);
    assert!(
        error.contains("a dependency on `pytest`") && error.contains("a file `tests/test*.py`"),
        "{error}"
    );
    let all = "[dependency-groups]\ndev = ['ruff', 'mypy', 'pytest']\n";
    assert_eq!(
        run(&[("pyproject.toml", all), ("uv.lock", "")]),
        ["ruff check .", "ruff format --check .", "mypy .", "pytest"]
            .map(|tool| format!("uv run --offline --no-sync python -m {tool}"))
    );
    let black = [("requirements.txt", "ruff\nblack\nflake8\npyright\n"), ("test_a.py", "")];
    assert_eq!(
        run(&black),
        ["ruff check .", "black --check .", "flake8", "pyright", "unittest discover"]
            .map(|tool| format!("python3 -m {tool}"))
    );
}

#[test]
fn every_other_builtin_profile_fits_its_repository() {
    let only = |profile: &str, file: &str, text: &str| commands(profile, &[(file, text)]);
    assert_eq!(
        only("rust_strict", "Cargo.toml", "").last().map(String::as_str),
        Some("cargo test --workspace --offline")
    );
    assert_eq!(only("go_strict", "go.mod", "").len(), 4);
    assert_eq!(
        commands("go_strict", &[("go.mod", ""), (".golangci.yml", "")]).last().map(String::as_str),
        Some("golangci-lint run")
    );
    let flutter = only("flutter_strict", "pubspec.yaml", "dependencies:\n  flutter:\n    sdk: flutter\n");
    assert_eq!(flutter[1..], ["flutter analyze --no-pub", "flutter test --no-pub"]);
    let dart = only("flutter_strict", "pubspec.yaml", "dev_dependencies:\n  test: ^1\n");
    assert_eq!(dart[1..], ["dart analyze --fatal-infos", "dart test"]);
    assert!(only("java_maven", "pom.xml", "")[0].starts_with("mvn --batch-mode"));
    assert!(commands("java_maven", &[("pom.xml", ""), ("mvnw", "")])[0].starts_with("./mvnw --batch-mode"));
    assert!(only("java_gradle", "build.gradle", "")[0].starts_with("gradle --no-daemon --offline"));
    assert!(commands("java_gradle", &[("build.gradle", ""), ("gradlew", "")])[0].starts_with("./gradlew "));
    assert_eq!(
        commands("ruby_strict", &[("Gemfile", "gem 'rspec'\ngem \"rubocop\", require: false\n")]),
        ["bundle exec rubocop", "bundle exec rspec"]
    );
    assert_eq!(
        commands("ruby_strict", &[("Gemfile", ""), ("test/a_test.rb", "")]),
        ["bundle exec rake test"]
    );
    assert_eq!(
        commands("ruby_strict", &[("Gemfile", ""), ("bin/rails", ""), ("test/a_test.rb", "")]),
        ["bin/rails test"]
    );
    let php = |text: &str| only("php_strict", "composer.json", text)[1..].to_vec();
    assert_eq!(php(r#"{"require-dev": {"phpunit/phpunit": "1"}}"#), ["vendor/bin/phpunit"]);
    assert_eq!(php(r#"{"require-dev": {"phpunit/phpunit": "1", "pestphp/pest": "1"}}"#), ["vendor/bin/pest"]);
    assert_eq!(
        php(r#"{"scripts": {"test": "phpunit", "lint": "phpcs"}, "require-dev": {"phpunit/phpunit": "1"}}"#),
        ["composer run-script lint --no-interaction", "composer run-script test --no-interaction"]
    );
    assert_eq!(only("dotnet_strict", "a.sln", "").len(), 3);
    assert_eq!(
        only("elixir_strict", "mix.exs", "{:credo, \"1\"}"),
        ["mix compile --warnings-as-errors", "mix credo --strict", "mix test"]
    );
    assert_eq!(only("swift_strict", "Package.swift", "").len(), 2);
    assert_eq!(only("deno_strict", "deno.json", r#"{"tasks": {"test": "x"}}"#)[2..], ["deno task test"]);
    assert_eq!(only("deno_strict", "deno.json", "{}")[2..], ["deno test --cached-only"]);
    assert_eq!(only("cmake", "CMakeLists.txt", "").len(), 1);
    assert_eq!(only("make", "Makefile", "test:\n\nlint: x\n"), ["make lint", "make test"]);
}

#[test]
fn nothing_to_check_is_never_a_list_of_nothing() {
    for (profile, file, text) in [
        ("node_strict", "package.json", r#"{"scripts": {"start": "x"}}"#),
        ("python_strict", "pyproject.toml", "[project]\n"),
        ("ruby_strict", "Gemfile", ""),
        ("make", "Makefile", "all:\n"),
    ] {
        let error = nothing(profile, &[(file, text)]);
        assert!(error.contains(&format!("the profile `{profile}` has no command")), "{error}");
        assert!(error.contains("looked for: "), "{error}");
    }
}

#[test]
fn builtin_commands_leave_the_network_alone_where_their_tool_can() {
    for (profile, word) in [
        ("rust_strict", "--offline"),
        ("java_maven", "--offline"),
        ("java_gradle", "--offline"),
        ("flutter_strict", "--no-pub"),
        ("deno_strict", "--cached-only"),
    ] {
        assert!(builtin::text(profile).is_some_and(|text| text.contains(word)), "{profile}");
    }
}
