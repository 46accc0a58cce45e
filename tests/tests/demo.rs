//! `agency demo`: what a newcomer sees first.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use agency_tests::ground::{Ground, Said};
use agency_tests::repository::actors;

/// What is told, without what is another each time: the folder, the commits, whose home it is.
fn lasting(told: &str, folder: &Path) -> String {
    let told = told.replace(&folder.display().to_string(), "FOLDER");
    let is_commit = |word: &str| {
        let plain = word.trim_end_matches('.');
        plain.len() == 12 && plain.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let line = |line: &str| {
        if let Some(file) = line.find("/.ssh/id_rsa") {
            return format!("    cat: HOME{}", &line[file..]);
        }
        let words = line.split(' ').map(|word| if is_commit(word) { "COMMIT." } else { word });
        words.collect::<Vec<_>>().join(" ")
    };
    told.lines().map(|one| line(one) + "\n").collect()
}

#[test]
fn the_demo_shows_the_whole_thing_in_less_than_a_minute() {
    for actor in actors() {
        let ground = Ground::of(actor, &[]);
        let folder = ground.user().join("demo");
        let began = Instant::now();
        let said = ground.agency(&["demo", "--folder", &folder.display().to_string()]);
        assert_eq!(said.code, 0, "{actor:?}: {said:?}");
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
        let expected = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/demo/told.txt"));
        assert_eq!(lasting(&said.out, &folder), expected.expect("a snapshot"), "{actor:?}");
        said.assert_names(&["T0004 failed: no output or file change", "2 of 4 tasks done"]);
        // What it tells is so.
        let read = |file: &str| fs::read_to_string(folder.join(file)).expect(file);
        assert!(read("docs/prices.md").contains("Not to be changed") && read("src/price.sh").contains("19"));
        assert!(read("src/hello_es.sh").contains("Hola") && read("src/round.sh").contains("+ 50"));
        assert_eq!(read("docs/guide.md"), "# Guide\n\nTo be written.\n");
    }
}

#[test]
fn the_demo_tells_programs_what_it_tells_people() {
    let ground = Ground::without_board(&[]);
    let said = ground.ok(&["demo", "--json"]).json();
    assert_eq!((&said["version"], &said["as_it_should"]), (&1.into(), &true.into()), "{said}");
    let told: Vec<(&str, &str, u64)> = said["tasks"]
        .as_array()
        .expect("tasks")
        .iter()
        .map(|task| {
            let text = |key: &str| task[key].as_str().expect("a text");
            (text("agent"), text("status"), task["attempts"].as_u64().expect("a number"))
        })
        .collect();
    let expected =
        [("good", "DONE", 1), ("stray", "BLOCKED", 1), ("mend", "DONE", 2), ("hang", "BLOCKED", 2)];
    assert_eq!(told, expected);
    fs::remove_dir_all(said["folder"].as_str().expect("a folder")).expect("removed");
}

#[test]
fn the_demo_takes_no_folder_that_has_something_in_it() {
    let ground = Ground::without_board(&[("mine.txt", "mine\n")]);
    ground.refused(2, &["demo", "--folder", "."]).assert_names(&["is not empty"]);
}

/// Neither what the environment says to git and to us, nor what somebody configured for themselves.
#[test]
fn the_environment_has_no_say_in_the_demo() {
    let ground = Ground::without_board(&[]);
    let folder = ground.user().join("demo");
    // With a say, each of them would be refused: there is no image, and no such repository.
    ground.write("own/agency/agency.toml", "[run]\nisolation = \"container\"\n");
    let mut command = ground.command(&["demo", "--json", "--folder", &folder.display().to_string()]);
    command.env("XDG_CONFIG_HOME", ground.path().join("own"));
    command.env("AGENCY_PROTOCOL", "codifica").env("AGENCY_TRUST", "no");
    command.env("GIT_DIR", "/nonexistent").env("GIT_WORK_TREE", "/nonexistent");
    let name =
        [("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "user.name"), ("GIT_CONFIG_VALUE_0", "Other")];
    let said: Said = command.envs(name).output().expect("it runs").into();
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(said.json()["as_it_should"], true, "{said:?}");
    let mut git = ground.program(Path::new("git"));
    let log = git.arg("-C").arg(&folder).args(["log", "--format=%an, %cn"]).output().expect("git runs");
    let log = String::from_utf8(log.stdout).expect("text");
    assert!(log.lines().count() >= 3 && log.lines().all(|line| line.ends_with("You")), "{log}");
}
