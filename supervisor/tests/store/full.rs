//! A disk that is full, and one that can only be read: an error that says so, and nothing lost.

use std::process::Command;

use serde_json::Value;

use crate::processes::PROGRAM;

/// Says that a test did not run, and why; `scripts/test` lists these at the end.
#[allow(clippy::print_stderr)]
fn skip(test: &str, reason: &str) {
    let line = format!("skipped: {test}: {reason}");
    eprintln!("{line}");
    if let Some(file) = std::env::var_os("AGENCY_SKIPPED") {
        use std::io::Write;
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(file);
        let _ = opened.and_then(|mut file| writeln!(file, "{line}"));
    }
}

/// Runs a script with a small file system at `$FOLDER`, which nobody else sees, and returns what it said.
fn in_a_small_folder(size: &str, script: &str) -> Result<Vec<Value>, String> {
    let folder = tempfile::Builder::new().prefix("agency-small-").tempdir().expect("a folder");
    let mount = "mount -t tmpfs -o size=$SIZE agency \"$FOLDER\"";
    let run = |script: &str| {
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--mount", "--propagation", "private", "sh", "-ec", script]);
        command.env("FOLDER", folder.path()).env("PROGRAM", PROGRAM).env("SIZE", size);
        command.output()
    };
    let tried = run(mount).map_err(|error| format!("unshare can't be started: {error}"))?;
    if !tried.status.success() {
        return Err(String::from_utf8_lossy(&tried.stderr).trim().to_owned());
    }
    let output = run(&format!("{mount}\n{script}")).expect("it ran before");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).expect("text");
    Ok(said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect())
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} of {value}"))
}

/// SQLite has several words for it, by which of the files it was that could not grow.
fn assert_full(said: &str) {
    assert!(["is full", "disk I/O error", "No space left"].iter().any(|word| said.contains(word)), "{said}");
}

#[test]
fn a_full_disk_is_an_error_and_what_was_written_before_is_there() {
    // Each leaves another bit of the file or its journal without room.
    for room in ["1m", "400k", "404k", "408k", "412k", "416k", "480k"] {
        let script = "
            head -c 150000 /dev/zero > $FOLDER/ballast
            $PROGRAM act=fill path=$FOLDER/store ballast=$FOLDER/ballast
        ";
        let said = match in_a_small_folder(room, script) {
            Ok(said) => said,
            Err(reason) => {
                return skip("a_full_disk_is_an_error_and_what_was_written_before_is_there", &reason);
            }
        };
        let said = &said[0];
        assert_full(text(said, "error"));
        let written = said["written"].as_u64().expect("a number");
        assert!(written > 3, "{said}");
        // The claim is there, too. A write that failed may be there or not.
        let whole = written + 1..=written + 3;
        assert!(whole.contains(&said["read_when_full"].as_u64().expect("read")), "{said}");
        assert_eq!(said["after"], Value::Null, "with room again it goes on: {said}");
        let whole = written + 2..=written + 4;
        assert!(whole.contains(&said["read"].as_u64().expect("read")), "{said}");
    }
}

#[test]
fn however_little_room_there_is_a_store_is_made_as_a_whole_or_not_at_all() {
    let script = "
        for room in $(seq 8 8 320); do
            head -c $((2048 - room))k /dev/zero > $FOLDER/ballast
            $PROGRAM act=open path=$FOLDER/store
            rm $FOLDER/ballast
            test -e $FOLDER/store || ls -A $FOLDER | sed 's/.*/\"&\"/'
            $PROGRAM act=open path=$FOLDER/store
            rm -f $FOLDER/store $FOLDER/store-journal
        done
    ";
    let said = match in_a_small_folder("2m", script) {
        Ok(said) => said,
        Err(reason) => {
            let test = "however_little_room_there_is_a_store_is_made_as_a_whole_or_not_at_all";
            return skip(test, &reason);
        }
    };
    assert_eq!(said.len(), 80, "what was not made left nothing behind: {said:?}");
    let mut opened = 0;
    for (number, pair) in said.chunks(2).enumerate() {
        match pair[0]["opened"].as_bool() {
            Some(_) => opened += 1,
            None => assert_full(text(&pair[0], "error")),
        }
        assert_eq!(pair[1]["opened"], true, "with {} KiB: {pair:?}", 8 * (number + 1));
    }
    assert!((5..35).contains(&opened), "{opened} found room enough");
}

#[test]
fn a_disk_that_can_only_be_read_is_an_error() {
    let script = "
        $PROGRAM act=open path=$FOLDER/store
        mount -o remount,bind,ro $FOLDER
        $PROGRAM act=open path=$FOLDER/store
        $PROGRAM act=open path=$FOLDER/another
    ";
    match in_a_small_folder("1m", script) {
        Ok(said) => {
            assert_eq!(said[0]["opened"], true, "{said:?}");
            for said in &said[1..] {
                assert!(text(said, "error").contains("Read-only file system"), "{said}");
            }
            assert_eq!(said.len(), 3);
        }
        Err(reason) => skip("a_disk_that_can_only_be_read_is_an_error", &reason),
    }
}
