//! Which environment a repository is, and which profiles that means.

mod support;

use std::fs;
use std::os::unix::fs::symlink;

use agency_profiles::builtin;
use agency_profiles::detect;
use agency_profiles::library::{LibraryError, ProfileLibrary};
use agency_profiles::profile::{ProfileName, ProfileOrigin};
use agency_profiles::project_files::ProjectFiles;
use agency_sandbox::workspace::folder::WorkspaceFolder;
use agency_sandbox::workspace::snapshot::{SnapshotCost, Snapshots};
use agency_sandbox::workspace::state::StateFolder;
use support::Place;

fn seen(place: &Place) -> ProjectFiles {
    ProjectFiles::open(place.path()).expect("sight")
}

#[test]
fn every_environment_is_told_by_its_manifest() {
    for (file, environment, profile) in [
        ("package.json", "node", "node_strict"),
        ("deno.json", "deno", "deno_strict"),
        ("deno.jsonc", "deno", "deno_strict"),
        ("pyproject.toml", "python", "python_strict"),
        ("requirements.txt", "python", "python_strict"),
        ("setup.py", "python", "python_strict"),
        ("setup.cfg", "python", "python_strict"),
        ("Pipfile", "python", "python_strict"),
        ("Cargo.toml", "rust", "rust_strict"),
        ("go.mod", "go", "go_strict"),
        ("pubspec.yaml", "flutter", "flutter_strict"),
        ("pom.xml", "java", "java_maven"),
        ("build.gradle", "java", "java_gradle"),
        ("build.gradle.kts", "java", "java_gradle"),
        ("settings.gradle", "java", "java_gradle"),
        ("settings.gradle.kts", "java", "java_gradle"),
        ("Gemfile", "ruby", "ruby_strict"),
        ("gems.rb", "ruby", "ruby_strict"),
        ("composer.json", "php", "php_strict"),
        ("App.sln", "dotnet", "dotnet_strict"),
        ("App.slnx", "dotnet", "dotnet_strict"),
        ("App.csproj", "dotnet", "dotnet_strict"),
        ("App.fsproj", "dotnet", "dotnet_strict"),
        ("App.vbproj", "dotnet", "dotnet_strict"),
        ("mix.exs", "elixir", "elixir_strict"),
        ("Package.swift", "swift", "swift_strict"),
        ("CMakeLists.txt", "cmake", "cmake"),
    ] {
        let found = detect::detect_environments(&seen(&Place::new(&[(file, "{}"), ("README.md", "x")])));
        let [one] = &found[..] else { panic!("{file}: {found:?}") };
        assert_eq!((one.environment, one.evidence.as_str(), one.profile), (environment, file, profile));
        assert!(builtin::text(profile).is_some(), "{profile}");
        assert!(detect::profile_for(environment).is_some_and(|name| builtin::text(name).is_some()));
    }
}

#[test]
fn several_environments_count_all_and_a_makefile_only_alone() {
    let makefile = ("Makefile", "check:\n\ttrue\n");
    let names = |files: &[(&str, &str)]| {
        let names = detect::detect_profiles(&seen(&Place::new(files)));
        names.map(|names| names.iter().map(ProfileName::to_string).collect::<Vec<_>>())
    };
    assert_eq!(
        names(&[("Cargo.toml", ""), ("package.json", "{}"), makefile]),
        Ok(vec!["node_strict".into(), "rust_strict".into()])
    );
    assert_eq!(names(&[makefile]), Ok(vec!["make".into()]));
    assert_eq!(names(&[("GNUmakefile", "test: x\n")]), Ok(vec!["make".into()]));
    // What lies deeper, is called otherwise or checks nothing tells nothing.
    for files in [&[("web/package.json", "{}")][..], &[("Makefile", "all:\n")], &[("package.json5", "")], &[]]
    {
        let error = names(files).expect_err("nothing").to_string();
        assert!(error.contains("name a profile instead of `auto`"), "{error}");
    }
}

#[test]
fn a_manifest_that_cannot_be_understood_is_an_error_and_not_one_that_asks_for_nothing() {
    let rust = ("Cargo.toml", "[package]\n");
    let resolve = |place: &Place| ProfileLibrary::default().resolve("auto", &seen(place));
    // Beside another environment, whose checks would pass without it.
    let link = Place::new(&[rust, ("elsewhere/package.json", "{}")]);
    symlink("elsewhere/package.json", link.path().join("package.json")).expect("a link");
    let folder = Place::new(&[rust, ("package.json/x", "")]);
    let broken = Place::new(&[rust, ("package.json", "{\"scripts\": ")]);
    let giant = Place::new(&[rust, ("package.json", &" ".repeat(5 << 20))]);
    for (place, words) in
        [(&link, "links are not followed"), (&folder, "is not a file"), (&broken, "EOF"), (&giant, "4 MiB")]
    {
        let error = resolve(place).expect_err(words).to_string();
        let start =
            "what the profile `node_strict` has to check can't be told: package.json can't be understood: ";
        assert!(error.starts_with(start) && error.contains(words), "{error}");
    }
    let other = Place::new(&[("pyproject.toml", "not [ toml"), ("tests/test_a.py", "")]);
    assert!(resolve(&other).expect_err("refused").to_string().contains("pyproject.toml can't be understood"));
    // What no profile asks about is nobody's business.
    assert!(resolve(&Place::new(&[rust, ("composer.lock", "{")])).is_ok());
}

#[test]
fn the_tree_of_a_commit_is_seen_through_its_layers() {
    let place = Place::repository(&[
        ("package.json", r#"{"scripts": {"test": "x"}}"#),
        ("tests/test_a.py", ""),
        ("kept/a", ""),
    ]);
    let folder = WorkspaceFolder::discover(place.path()).expect("a folder");
    let state = tempfile::tempdir().expect("a folder");
    let state = StateFolder::at(state.path());
    let repository = folder.repository.as_ref().expect("a repository");
    let snapshots = Snapshots::open(&state, repository, "git".as_ref()).expect("snapshots");
    let first = snapshots.layers("HEAD").expect("layers");
    place.git(&["rm", "-r", "--quiet", "package.json", "tests"]);
    place.write("Cargo.toml", "[package]\n");
    place.commit("Second");
    let second = snapshots.layers("HEAD").expect("layers");
    assert_eq!((first.lowers.len(), second.made, second.lowers.len()), (1, SnapshotCost::Delta, 2));

    let before = ProjectFiles::open_layers(&first.lowers).expect("sight");
    let after = ProjectFiles::open_layers(&second.lowers).expect("sight");
    let names = |sight: &ProjectFiles| {
        detect::detect_environments(sight).iter().map(|one| one.profile).collect::<Vec<_>>()
    };
    assert_eq!(names(&before), ["node_strict"]);
    assert_eq!(names(&after), ["rust_strict"]);
    let library = ProfileLibrary::default();
    let run = |sight: &ProjectFiles| library.resolve("auto", sight).expect("resolves").steps()[0].run.clone();
    assert_eq!(run(&before), "npm run test");
    assert_eq!(run(&after), "cargo fmt --all --check");
    // What the delta takes away is gone, for names and for patterns.
    let python = |sight: &ProjectFiles| {
        library.resolve("python_strict", sight).map(|resolved| resolved.steps()[0].run.clone())
    };
    assert_eq!(python(&before).expect("resolves"), "python3 -m unittest discover -s tests");
    assert!(python(&after).is_err());
}

fn library(files: &[(&str, &str)]) -> (Place, ProfileLibrary) {
    let place = Place::new(files);
    let library = ProfileLibrary::new(Some(place.path().to_owned()));
    (place, library)
}

fn name(text: &str) -> ProfileName {
    ProfileName::parse(text).expect("a name")
}

const MINE: &str = "name: mine\ndescription: d\ncommands: [make]\n";

#[test]
fn a_repositorys_own_profile_goes_before_a_builtin_one_and_needs_trust() {
    let own = "name: rust_strict\ndescription: d\ncommands: [make]\n";
    let copy = builtin::text("go_strict").expect("text");
    let (place, library) = library(&[("rust_strict.yml", own), ("mine.yaml", MINE), ("go_strict.yml", copy)]);
    let found = library.find(&name("rust_strict")).expect("found");
    assert_eq!(found.origin, ProfileOrigin::Repository { path: place.path().join("rust_strict.yml") });
    assert_eq!(found.profile.commands[0].run, "make");
    assert!(found.needs_trust());
    assert!(library.find(&name("mine")).expect("found").needs_trust());
    // A copy of a builtin profile does nothing new.
    let copied = library.find(&name("go_strict")).expect("found");
    assert!(!copied.needs_trust() && copied.origin != ProfileOrigin::Builtin);
    let builtin = library.find(&name("node_strict")).expect("found");
    assert!(!builtin.needs_trust() && builtin.origin == ProfileOrigin::Builtin);
    let rust = Place::new(&[("Cargo.toml", "")]);
    let resolved = library.resolve("auto", &seen(&rust)).expect("resolves");
    let untrusted: Vec<_> = resolved.untrusted().iter().map(|own| own.path.clone()).collect();
    assert_eq!(untrusted, [place.path().join("rust_strict.yml")]);
    assert_eq!(resolved.steps()[0].run, "make");
}

#[test]
fn an_unknown_name_is_answered_with_the_nearest_and_the_list() {
    let (_place, library) = library(&[("mine.yml", MINE), ("notes.txt", ""), ("..yml", ""), ("a b.yml", "")]);
    let error = library.find(&name("rust_stirct")).expect_err("unknown").to_string();
    assert!(
        error.starts_with(
            "there is no profile `rust_stirct`; did you mean `rust_strict`? There are mine, node_strict,"
        ),
        "{error}"
    );
    assert!(!error.contains("notes") && !error.contains("a b"), "{error}");
    let error = library.find(&name("minne")).expect_err("unknown").to_string();
    assert!(error.contains("did you mean `mine`?"), "{error}");
    let error = library.find(&name("quick")).expect_err("unknown").to_string();
    assert!(error.starts_with("there is no profile `quick`; there are mine, node_strict,"), "{error}");
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let (place, library) = library(&[("sub/mine.yml", MINE)]);
    let sight = seen(&place);
    for wanted in ["sub/mine", "../mine", "/etc/passwd", "", "a+../b", "mine+", ".hidden"] {
        let error = library.choose(wanted, &sight).expect_err(wanted);
        assert!(matches!(error, LibraryError::Name(_)), "{wanted}: {error}");
    }
}

#[test]
fn a_file_that_is_a_link_too_large_or_called_otherwise_is_refused() {
    let (place, library) = library(&[("real/mine.yml", MINE), ("other.yml", MINE)]);
    symlink("real/mine.yml", place.path().join("mine.yml")).expect("a link");
    let error = library.find(&name("mine")).expect_err("refused").to_string();
    assert!(error.ends_with("mine.yml is a link, and links are not followed"), "{error}");
    let error = library.find(&name("other")).expect_err("refused").to_string();
    assert!(error.ends_with("`name` is `mine`, but the file is called other.yml"), "{error}");
    place.write("large.yml", format!("{MINE}# {}", "x".repeat(300 << 10)));
    let error = library.find(&name("large")).expect_err("refused").to_string();
    assert!(error.ends_with("large.yml is larger than 256 KiB"), "{error}");
    fs::create_dir(place.path().join("folder.yml")).expect("a folder");
    let error = library.find(&name("folder")).expect_err("refused").to_string();
    assert!(error.ends_with("is not a file"), "{error}");
    // The folder itself may be missing, but not be a link.
    assert!(ProfileLibrary::new(Some(place.path().join("no"))).find(&name("make")).is_ok());
    symlink("real", place.path().join("linked")).expect("a link");
    assert!(ProfileLibrary::new(Some(place.path().join("linked"))).find(&name("mine")).is_err());
}

#[test]
fn several_names_are_several_profiles_in_one() {
    let place = Place::new(&[("Cargo.toml", ""), ("package.json", r#"{"scripts": {"lint": "x"}}"#)]);
    let library = ProfileLibrary::default();
    let auto = library.resolve("auto", &seen(&place)).expect("resolves");
    assert_eq!(auto.name(), "node_strict+rust_strict");
    let named = library.resolve("node_strict+rust_strict", &seen(&place)).expect("resolves");
    assert_eq!((named.steps(), named.hash()), (auto.steps(), auto.hash()));
    assert_eq!(auto.steps()[0].run, "npm run lint");
    assert_eq!(auto.steps()[0].profile, "node_strict");
    // A part that has nothing to check is noted where the repository was asked, and an error where it was named.
    let place = Place::new(&[("Cargo.toml", ""), ("package.json", "{}")]);
    let auto = library.resolve("auto", &seen(&place)).expect("resolves");
    assert!(auto.notes().iter().any(|note| note == "node_strict has no command for this repository"));
    assert!(auto.steps().iter().all(|step| step.profile == "rust_strict"));
    assert!(library.resolve("node_strict+rust_strict", &seen(&place)).is_err());
    let nothing =
        library.resolve("auto", &seen(&Place::new(&[("package.json", "{}")]))).expect_err("nothing");
    assert!(nothing.to_string().contains("a script `lint`"), "{nothing}");
}
