//! What people are told about profiles is so.

use std::fs;
use std::path::Path;

use agency_profiles::builtin;
use agency_profiles::detect;
use agency_profiles::profile::Profile;
use agency_profiles::project_files::ProjectFiles;

fn page() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    fs::read_to_string(root.join("docs/profiles.md")).expect("a page")
}

#[test]
fn every_example_is_a_profile() {
    let page = page();
    let examples: Vec<&str> =
        page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(examples.len(), 3);
    for example in examples {
        let parsed = Profile::parse(Path::new("example.yml"), example).expect(example);
        assert!(parsed.notes.is_empty(), "{:?}", parsed.notes);
    }
}

#[test]
fn the_table_of_auto_lists_every_builtin_profile_by_the_files_that_mean_it() {
    let page = page();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    for profile in builtin::names() {
        let row = rows.iter().find(|row| row.contains(&format!("| `{profile}` |")));
        let row = row.unwrap_or_else(|| panic!("{profile} is not in the table"));
        let files = row.trim_start_matches("| ").split(" | ").next().unwrap_or_default();
        for file in files.split('`').skip(1).step_by(2).take_while(|_| profile != "make") {
            let folder = tempfile::tempdir().expect("a folder");
            fs::write(folder.path().join(file.replace('*', "a")), "").expect("a file");
            let found = detect::detect_environments(&ProjectFiles::open(folder.path()).expect("sight"));
            let named: Vec<&str> = found.iter().map(|one| one.profile).collect();
            assert!(file == ".kts" || named == [profile], "{file}: {named:?}");
        }
    }
}
