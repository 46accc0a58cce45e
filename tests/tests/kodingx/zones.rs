//! §4: dates and times are those of the board's place, whoever works on it wherever.

use std::process::Command;

use crate::ground::{Ground, Said};

/// What the system's own `date` says there.
fn date(zone: &str, format: &str) -> String {
    let output = Command::new("date").env("TZ", zone).arg(format).output().expect("date runs");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

fn board(zone: &str) -> Ground {
    let ground = Ground::new();
    let manifest = ground.json(".kodingx/agency.json");
    let old = manifest["defaults"]["timezone"].as_str().expect("a zone").to_owned();
    ground.edit(
        ".kodingx/agency.json",
        &format!("\"timezone\": \"{old}\""),
        &format!("\"timezone\": \"{zone}\""),
    );
    ground
}

#[test]
fn s04_dates_and_times_are_local_to_the_boards_zone() {
    for zone in ["Pacific/Auckland", "Pacific/Kiritimati", "America/St_Johns", "Pacific/Pago_Pago"] {
        let ground = board(zone);
        let before = date(zone, "+%Y-%m-%d %H%M");
        let id = ground.task("One", &[]);
        let after = date(zone, "+%Y-%m-%d %H%M");
        let file = ground.file(&id);
        let parts: Vec<&str> = file.split('/').collect();
        let named = format!("{} {}", parts[3], parts[4].split('-').nth(1).expect("a time"));
        assert!(before <= named && named <= after, "{zone}: {before} {named} {after}");
        let created = ground.header(&file)["created_at"].as_str().expect("a time").to_owned();
        assert!(created.ends_with(&date(zone, "+%:z")), "{zone}: {created}");
        assert_eq!(format!("{} {}", &created[..10], created[11..16].replace(':', "")), named);
        let updated = ground.header(".kodingx/STATE.md")["updated_at"].as_str().expect("a time").to_owned();
        assert!(updated.ends_with(&date(zone, "+%:z")), "{zone}: {updated}");
        ground.assert_compliant();
    }
}

#[test]
fn the_zone_of_whoever_types_does_not_matter() {
    let ground = board("Pacific/Auckland");
    for (number, own) in ["America/Los_Angeles", "Pacific/Kiritimati", "", "Nowhere/Known"].iter().enumerate()
    {
        let mut command = ground.command(&["task", "new", "--title", "x", "--must-touch", "src/**"]);
        let said: Said = command.env("TZ", own).output().expect("agency starts").into();
        assert_eq!(said.code, 0, "TZ={own}: {said:?}");
        let file = ground.file(&format!("T{:04}", number + 1));
        let created = ground.header(&file)["created_at"].as_str().expect("a time").to_owned();
        assert!(created.ends_with(&date("Pacific/Auckland", "+%:z")), "TZ={own}: {created}");
    }
}

#[test]
fn verifications_are_dated_in_the_boards_zone() {
    let ground = board("Pacific/Kiritimati");
    ground.profile("mine", &["true"]);
    let id = ground.task("One", &["--dod-profile", "mine"]);
    let before = date("Pacific/Kiritimati", "+%Y-%m-%d");
    let path = ground.ok(&["verify", "--task", &id, "--json"]).json()["artifact"].clone();
    let after = date("Pacific/Kiritimati", "+%Y-%m-%d");
    let day = path.as_str().and_then(|path| path.split('/').nth(2)).expect("a day").to_owned();
    assert!([before, after].contains(&day), "{day}");
    let timestamp = ground.json(path.as_str().expect("a path"))["timestamp"].clone();
    assert!(timestamp.as_str().is_some_and(|time| time.starts_with(&day) && time.ends_with("+14:00")));
}

#[test]
fn init_takes_the_zone_it_is_run_in() {
    for (zone, written) in [("Europe/Zurich", "Europe/Zurich"), ("UTC", "UTC")] {
        let ground = Ground::without_board(&[]);
        let mut command = ground.command(&["init"]);
        let said: Said = command.env("TZ", zone).output().expect("agency starts").into();
        assert_eq!(said.code, 0, "{said:?}");
        let manifest = ground.json(".kodingx/agency.json");
        assert_eq!(manifest["defaults"]["timezone"], written);
        assert!(manifest["created_at"].as_str().is_some_and(|time| time.ends_with(&date(zone, "+%:z"))));
    }
}
