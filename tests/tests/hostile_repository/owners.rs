//! Whose a repository is, judged as git judges it; and root, who becomes its owner first.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};

use agency_tests::ground::{Ground, Said};
use agency_tests::repository::{Actor, skip};

use crate::world::{COMMANDS, World};

/// Only root can play somebody else.
fn is_root(test: &str) -> bool {
    let root = nix::unistd::Uid::current().is_root();
    if !root {
        skip(test, "only root can be two users");
    }
    root
}

/// `agency`, started by root in a folder, with root's own environment.
fn by_root(world: &World, folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(world.ground.program_path());
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", "/root");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("XDG_STATE_HOME", "/root/.local/state");
    command.args(arguments).current_dir(folder).output().expect("agency starts")
}

/// Everything below a folder is its owner's.
fn assert_owned(folder: &Path, owner: (u32, u32)) {
    let mut waiting = vec![folder.to_owned()];
    while let Some(path) = waiting.pop() {
        let meta = fs::symlink_metadata(&path).expect("looked");
        assert_eq!(meta.uid(), owner.0, "{}", path.display());
        if meta.is_dir() {
            waiting.extend(fs::read_dir(&path).expect("listed").flatten().map(|entry| entry.path()));
        }
    }
}

#[test]
fn root_becomes_the_owner_in_every_verb() {
    if !is_root("root_becomes_the_owner_in_every_verb") {
        return;
    }
    let world = World::new(Actor::User);
    let owner = world.ground.owner().expect("a user");
    let whoami = by_root(&world, world.ground.path(), &["sandbox", "--", "sh", "-c", "id -u"]);
    assert_eq!(String::from_utf8_lossy(&whoami.stdout).trim(), owner.0.to_string(), "{whoami:?}");
    for arguments in COMMANDS {
        let output = by_root(&world, &world.ground.path().join("src"), arguments);
        assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"), "{output:?}");
        assert_owned(world.ground.path(), owner);
    }
    // They have no account, so root made a place for them.
    let place = Path::new("/var/lib/agency").join(owner.0.to_string());
    assert_owned(&place, owner);
    assert_eq!(fs::metadata(&place).expect("made").mode() & 0o777, 0o700);
    fs::remove_dir_all(&place).expect("removed");
}

/// A user's `.git` that names a repository of root's does not make root work there.
#[test]
fn what_a_git_file_says_does_not_keep_root_root() {
    if !is_root("what_a_git_file_says_does_not_keep_root_root") {
        return;
    }
    let (world, roots) = (World::new(Actor::User), World::new(Actor::Root));
    let before = agency_tests::tree::Tree::of(roots.ground.path()).expect("read");
    let owner = world.ground.owner().expect("a user");
    for named in ["commondir", "file"] {
        match named {
            "commondir" => {
                fs::write(world.git("commondir"), roots.ground.path().join(".git").display().to_string())
            }
            _ => {
                fs::remove_dir_all(world.ground.path().join(".git")).expect("removed");
                let text = format!("gitdir: {}\n", roots.ground.path().join(".git").display());
                fs::write(world.ground.path().join(".git"), text)
            }
        }
        .expect("written");
        world.give(&world.ground.path().join(".git"));
        for arguments in COMMANDS {
            let output = by_root(&world, world.ground.path(), arguments);
            assert_eq!(output.status.code(), Some(2), "{named}: {arguments:?}: {output:?}");
            assert_owned(world.ground.path(), owner);
        }
        let changes = before.diff(&agency_tests::tree::Tree::of(roots.ground.path()).expect("read"));
        assert!(changes.is_empty(), "{}", changes.join("\n"));
    }
    let _ = fs::remove_dir_all(Path::new("/var/lib/agency").join(owner.0.to_string()));
}

#[test]
fn somebody_elses_repository_is_refused_with_gits_own_remedy() {
    if !is_root("somebody_elses_repository_is_refused_with_gits_own_remedy") {
        return;
    }
    let (theirs, me) = (World::new(Actor::Root), Ground::of(Actor::User, &[]));
    let folder = theirs.ground.path();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("opened");
    let there = |arguments: &[&str], configuration: &str| {
        let file = me.user().join("gitconfig");
        fs::write(&file, configuration).expect("written");
        let mut command = me.command(arguments);
        command.current_dir(folder).env("GIT_CONFIG_GLOBAL", &file);
        Said::from(command.output().expect("agency starts"))
    };
    let before = agency_tests::tree::Tree::of(folder).expect("read");
    for arguments in COMMANDS {
        let said = there(arguments, "");
        assert_eq!(said.code, 2, "{arguments:?}: {said:?}");
        said.assert_names(&["belongs to root", "git config --global --add safe.directory"]);
    }
    // What the repository says of itself has no say in it.
    theirs.ground.git(&["config", "safe.directory", "*"]);
    assert_eq!(there(&["status"], "").code, 2);
    theirs.ground.git(&["config", "--unset", "safe.directory"]);
    let safe = format!("[safe]\n\tdirectory = {}\n", folder.display());
    assert_eq!(there(&["status"], &safe).code, 0);
    let said = there(&["sandbox", "--", "cat", "src/a.txt"], &safe);
    assert_eq!((said.code, said.out.as_str()), (0, "one\n"), "{said:?}");
    for arguments in [&["run"][..], &["task", "new", "--title", "x"], &["adopt", "--yes"]] {
        let said = there(arguments, &safe);
        assert_eq!(said.code, 2, "{arguments:?}: {said:?}");
        said.assert_names(&["other users can only read"]);
    }
    let changes = before.diff(&agency_tests::tree::Tree::of(folder).expect("read"));
    let changes: Vec<_> = changes.iter().filter(|change| !change.contains(".git")).collect();
    assert!(changes.is_empty(), "{changes:?}");
}

#[test]
fn what_everybody_may_write_is_refused_and_what_a_group_may_is_told() {
    for actor in agency_tests::repository::actors() {
        let world = World::new(actor);
        let modes = |mode: u32| fs::Permissions::from_mode(mode);
        for name in ["", ".git"] {
            let path = world.ground.path().join(name);
            fs::set_permissions(&path, modes(0o777)).expect("chmod");
            world.assert_refused(COMMANDS, &["everybody may write in", "chmod o-w"]);
            fs::set_permissions(&path, modes(0o775)).expect("chmod");
            let said = world.agency(&["sandbox", "--json", "--", "true"]);
            assert_eq!(said.code, 0, "{said:?}");
            assert_eq!(said.json()["repository"]["group_writable"], true, "{said:?}");
            fs::set_permissions(&path, modes(0o755)).expect("chmod");
        }
        let said = world.agency(&["sandbox", "--json", "--", "true"]);
        assert_eq!(said.json()["repository"]["group_writable"], false, "{said:?}");
    }
}

/// A board needs no repository, and is somebody's nevertheless.
#[test]
fn a_board_in_a_folder_that_everybody_may_write_is_refused() {
    let base = if nix::unistd::Uid::current().is_root() { "/srv" } else { "/var/tmp" };
    let open = tempfile::Builder::new().prefix("agency-open-").tempdir_in(base).expect("a folder");
    let ground = Ground::of_nothing();
    fs::create_dir_all(open.path().join("mine")).expect("made");
    let there = |arguments: &[&str]| {
        Said::from(
            ground.command(arguments).current_dir(open.path().join("mine")).output().expect("agency starts"),
        )
    };
    let planted = Said::from(
        ground
            .command(&["init", "--orchestrator", "other", "--builders", "shell"])
            .current_dir(open.path())
            .output()
            .expect("agency starts"),
    );
    assert_eq!(planted.code, 0, "{planted:?}");
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o1777)).expect("chmod");
    for arguments in [&["status"][..], &["task", "new", "--title", "x"], &["lint"]] {
        let said = there(arguments);
        assert_eq!(said.code, 2, "{arguments:?}: {said:?}");
        said.assert_names(&["everybody may write in", "chmod o-w"]);
    }
}
