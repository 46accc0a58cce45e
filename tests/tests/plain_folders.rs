//! Host folders bound writable, outside any overlay: what is protected in them stays as it is, and can't be
//! walked around by renaming a folder above it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use agency_tests::adversary::copy_program;
use agency_tests::repository::{Repository, actors, said};

const PROGRAM: &str = env!("CARGO_BIN_EXE_plain_folder");

/// What a shell script does to a folder with `a/b/keep` in it, some of it protected.
fn try_on(protect: &str, script: &str) -> Vec<(String, String, String)> {
    let mut seen = Vec::new();
    for actor in actors() {
        let repository = Repository::new(actor, &[("file", "x\n")]).expect("a repository");
        let program =
            repository.path().join("../").join(format!("plain-folder-{}-{actor:?}", std::process::id()));
        copy_program(PROGRAM.as_ref(), &program).expect("copies");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("is executable");
        let folder =
            tempfile::Builder::new().prefix("agency-plain-").tempdir_in("/var/tmp").expect("a folder");
        fs::create_dir_all(folder.path().join("a/b")).expect("folders");
        fs::write(folder.path().join("a/b/keep"), "kept\n").expect("a file");
        // Root's agent is nobody on the host: a plain folder is only writable for it if it is for everybody.
        for path in ["", "a", "a/b", "a/b/keep"] {
            fs::set_permissions(folder.path().join(path), fs::Permissions::from_mode(0o777))
                .expect("opens up");
        }
        let output = repository
            .command(&program)
            .arg(folder.path())
            .arg(protect)
            .args(["sh", "-c", &format!("cd {} || exit 9\n{script}", folder.path().display())])
            .output()
            .expect("runs");
        fs::remove_file(&program).expect("goes");
        let (stdout, stderr) = said(&output);
        let now = fs::read_to_string(folder.path().join("a/b/keep")).unwrap_or_default();
        seen.push((stdout, stderr, now));
    }
    seen
}

#[test]
fn a_bound_folder_is_written_for_real() {
    for (_, stderr, now) in try_on("", "echo changed > a/b/keep") {
        assert_eq!(now, "changed\n", "{stderr}");
    }
}

#[test]
fn what_is_protected_in_it_is_not() {
    for (stdout, _, now) in try_on("a/b", "echo changed > a/b/keep || echo held; rm -f a/b/keep || echo held")
    {
        assert_eq!((stdout.as_str(), now.as_str()), ("held\nheld\n", "kept\n"));
    }
}

#[test]
fn a_folder_above_it_cannot_be_renamed_and_rebuilt() {
    let attack = "mv a elsewhere && mkdir -p a/b && echo forged > a/b/keep && echo rebuilt || echo held";
    // Without protection the attack works, so it is a real one.
    for (stdout, stderr, now) in try_on("", attack) {
        assert_eq!((stdout.as_str(), now.as_str()), ("rebuilt\n", "forged\n"), "{stderr}");
    }
    for (stdout, _, now) in try_on("a/b/keep", attack) {
        assert_eq!((stdout.as_str(), now.as_str()), ("held\n", "kept\n"));
    }
}
