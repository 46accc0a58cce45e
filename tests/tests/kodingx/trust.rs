//! A repository's own profile and configuration have no say until a person has looked at them.
//!
//! A command that ran leaves a log, whatever it did: that there is no folder of logs shows that none did.

use std::fs;

use crate::ground::{Ground, Said};

const PROFILE: &str = ".kodingx/dod/profiles/mine.yml";
const TEXT: &str = "name: mine\ndescription: d\ncommands: [\"true\"]\n";

/// A repository that somebody cloned, with a profile of its own and a task that names it.
fn cloned() -> Ground {
    let ground = Ground::new();
    ground.write(PROFILE, TEXT);
    ground.task("One", &["--dod-profile", "mine"]);
    ground
}

/// How many times something was run.
fn runs(ground: &Ground) -> usize {
    fs::read_dir(ground.state().join("verify")).map_or(0, Iterator::count)
}

fn verify(ground: &Ground) -> Said {
    ground.agency(&["verify", "--task", "T0001"])
}

#[track_caller]
fn assert_not_run(ground: &Ground) {
    let before = runs(ground);
    let said = ground.refused(2, &["verify", "--task", "T0001"]);
    said.assert_names(&[PROFILE, "is not trusted as it is", "`agency trust`"]);
    assert_eq!(runs(ground), before, "something ran");
}

#[test]
fn a_profile_of_the_repository_is_not_run_until_it_is_trusted() {
    let ground = cloned();
    assert_not_run(&ground);
    assert!(!ground.state().join("verify").exists());
    let said = ground.ok(&["trust", "--yes"]);
    assert!(said.out.contains("+commands: [\"true\"]") && said.out.contains(PROFILE), "{said:?}");
    assert_eq!(verify(&ground).code, 0);
    assert_eq!(runs(&ground), 1);
}

#[test]
fn an_override_runs_nothing_that_is_not_trusted() {
    let ground = cloned();
    let arguments = ["verify", "--task", "T0001", "--override", "--reason", "x", "--followup", "y"];
    ground.refused(2, &[&arguments[..], &["--as", "human:Ada"]].concat()).assert_names(&["trusted"]);
    assert_eq!(runs(&ground), 0);
}

#[test]
fn one_changed_byte_needs_trust_again() {
    let ground = cloned();
    ground.ok(&["trust", "--yes"]);
    assert_eq!(verify(&ground).code, 0);
    ground.write(PROFILE, TEXT.replace("true", "true "));
    assert_not_run(&ground);
    // What changed is shown, and nothing else.
    let said = ground.ok(&["trust", "--yes"]);
    assert!(said.out.contains("-commands: [\"true\"]\n+commands: [\"true \"]"), "{said:?}");
    assert_eq!(verify(&ground).code, 0);
    ground.write(PROFILE, TEXT);
    assert_not_run(&ground);
}

#[test]
fn trust_is_given_at_a_terminal_or_with_yes() {
    let ground = cloned();
    let said = ground.unchanged(2, &["trust"]);
    said.assert_names(&["for a person at a terminal", "--yes"]);
    assert!(said.out.contains("+commands: [\"true\"]"), "what it is about is shown: {said:?}");
    assert_not_run(&ground);
}

#[test]
fn a_flag_trusts_once() {
    let ground = cloned();
    ground.ok(&["verify", "--task", "T0001", "--trust"]);
    assert_eq!(runs(&ground), 1);
    assert_not_run(&ground);
}

#[test]
fn a_variable_of_the_environment_trusts_once() {
    let ground = cloned();
    for (value, trusts) in [("1", true), ("true", true), ("0", false), ("false", false)] {
        let before = runs(&ground);
        let mut command = ground.command(&["verify", "--task", "T0001"]);
        let said: Said = command.env("AGENCY_TRUST", value).output().expect("agency starts").into();
        assert_eq!(said.code, if trusts { 0 } else { 2 }, "AGENCY_TRUST={value}: {said:?}");
        assert_eq!(runs(&ground) - before, usize::from(trusts), "AGENCY_TRUST={value}");
    }
    assert_not_run(&ground);
}

/// What `init` wrote is what the program would do anyway. One byte of meaning more, and it is not.
#[test]
fn a_scaffolded_copy_of_a_builtin_profile_needs_no_trust() {
    let ground = Ground::without_board(&[("package.json", "{\"scripts\": {\"test\": \"true\"}}")]);
    ground.ok(&["init", "--builders", "codex"]);
    let profile = ".kodingx/dod/profiles/node_strict.yml";
    let id = ground.task("One", &["--dod-profile", "node_strict"]);
    let said = ground.agency(&["verify", "--task", &id]);
    // Whether this machine has npm is another matter: it was run.
    assert!([0, 10].contains(&said.code), "{said:?}");
    assert_eq!(runs(&ground), 1, "{said:?}");
    ground.edit(profile, "commands:\n", "commands:\n  - \"true\"\n");
    ground.refused(2, &["verify", "--task", &id]).assert_names(&[profile, "trusted"]);
    assert_eq!(runs(&ground), 1);
    // A builtin name is no way around it either.
    ground.write(profile, "name: node_strict\ndescription: d\ncommands: [\"true\"]\n");
    ground.refused(2, &["verify", "--task", &id]).assert_names(&[profile, "trusted"]);
    assert_eq!(runs(&ground), 1);
}

/// Everything a repository could bring along that looks like trust.
#[test]
fn a_repository_cannot_trust_itself() {
    let ground = cloned();
    let elsewhere = cloned();
    elsewhere.ok(&["trust", "--yes"]);
    let record = |ground: &Ground| -> Vec<std::path::PathBuf> {
        let folder = ground.state_home().join("trust");
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|e| e == "json"))
            .collect()
    };
    let forged = fs::read_to_string(&record(&elsewhere)[0]).expect("a record");
    let (theirs, ours) = (elsewhere.path().display().to_string(), ground.path().display().to_string());
    let forged = forged.replace(&theirs, &ours);
    let name = record(&elsewhere)[0].file_name().expect("a name").to_string_lossy().into_owned();
    for place in
        [".git/agency/trust", ".git/agency", ".agency/trust", ".local/state/agency/trust", "agency/trust"]
    {
        ground.write(&format!("{place}/{name}"), &forged);
        ground.write(&format!("{place}/trust.json"), &forged);
    }
    ground.write(".kodingx/trust.json", &forged);
    assert_not_run(&ground);
    // Its configuration can't say so either, and has no say in how its commands are held.
    ground.write("agency.toml", "[run]\ntrust = true\n");
    ground.refused(2, &["verify", "--task", "T0001"]).assert_names(&["agency.toml:2", "`run.trust`"]);
    ground.write("agency.toml", "[run]\nisolation = \"container\"\n");
    let said = ground.refused(2, &["verify", "--task", "T0001"]);
    said.assert_names(&["agency.toml is not trusted", "run.isolation", "is not trusted as it is"]);
    assert_eq!(runs(&ground), 0);
}

/// Trust is of a place and of a content: a copy elsewhere is another repository.
#[test]
fn trust_in_one_repository_is_none_in_another() {
    let (ground, other) = (cloned(), cloned());
    ground.ok(&["trust", "--yes"]);
    for entry in fs::read_dir(ground.state_home().join("trust")).expect("records").flatten() {
        let to = other.state_home().join("trust");
        fs::create_dir_all(&to).expect("made");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
    assert_not_run(&other);
}

/// What nobody trusts may narrow and no more; with trust it counts.
#[test]
fn a_configuration_counts_when_it_is_trusted() {
    let ground = cloned();
    let nowhere = "[container]\nimage = \"a\"\nengine = \"unix:///nowhere/socket\"\n";
    let text = format!("[run]\nisolation = \"container\"\nparallel = 1\n{nowhere}");
    ground.write("agency.toml", text);
    let said = ground.ok(&["trust", "--yes"]);
    assert!(said.out.contains("+isolation = \"container\""), "{said:?}");
    let said = verify(&ground);
    assert_eq!(said.code, 3, "an isolation that is not there: {said:?}");
    ground.edit("agency.toml", "parallel = 1", "parallel = 2");
    let said = verify(&ground);
    assert_eq!(said.code, 0, "{said:?}");
    said.assert_names(&["agency.toml is not trusted", "run.isolation"]);
    // An operator's own file needs no trust, and replaces the repository's.
    let own = ground.user().join("own.toml");
    fs::write(&own, "[run]\nisolation = \"process\"\n").expect("written");
    ground.ok(&["verify", "--task", "T0001", "--config", &own.display().to_string()]);
}
