//! What a harvest costs. Ignored, because the trees take longer to make than to harvest:
//! `TMPDIR=/dev/shm cargo test --release -p agency-sandbox --test harvest_scale -- --ignored --test-threads=1 --nocapture`

mod harvest_support;

use std::fs;
use std::time::Instant;

use agency_sandbox::harvest::HarvestLimits;
use agency_sandbox::secret::NamedSecret;
use harvest_support::*;

fn many(root: &std::path::Path, directories: usize, files: usize) {
    for directory in 0..directories {
        let path = root.join(format!("directory-{directory}"));
        fs::create_dir(&path).expect("made");
        for file in 0..files {
            fs::write(path.join(format!("file-{file}")), "x").expect("written");
        }
    }
}

#[allow(clippy::print_stderr)]
fn measured(what: &str, t: &Trees, asked: &Asked<'_>) -> (f64, usize) {
    let start = Instant::now();
    let harvest = t.asked(asked);
    let seconds = start.elapsed().as_secs_f64();
    let status = fs::read_to_string("/proc/self/status").expect("read");
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default().to_owned();
    eprintln!("{what}: {:.1} ms, {} changes, {peak}", seconds * 1000.0, harvest.changes.len());
    (seconds, harvest.changes.len())
}

#[test]
#[ignore = "makes 100,000 files"]
fn ten_changes_in_a_large_repository_take_milliseconds() {
    let t = trees();
    many(&t.base, 100, 1000);
    for index in 0..10 {
        put(&t.upper, format!("directory-{}/file-{index}", index * 7), "y");
    }
    let (seconds, changes) = measured("10 of 100,000", &t, &Asked::default());
    assert!(seconds < 0.05 && changes == 10);
}

#[test]
#[ignore = "makes a million files"]
fn a_million_tiny_files_take_seconds_and_little_memory() {
    let t = trees();
    many(&t.upper, 10, 100_000);
    let (seconds, _) = measured("a million files, usual limits", &t, &Asked::default());
    assert!(seconds < 5.0);
    let limits = HarvestLimits { changes: 2_000_000, ..HarvestLimits::default() };
    let secrets = vec![NamedSecret { name: "KEY".into(), value: b"0123456789".to_vec() }];
    let (seconds, changes) =
        measured("a million files, all of them", &t, &Asked { limits, secrets, ..Asked::default() });
    assert!(seconds < 60.0 && changes == 1_000_000);
}
