//! Making a repository, the real one or a planted one, run or believe something.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::as_both;
use crate::files::{Arguments, HOST, all_denied, held, shown_without};
use crate::ground::{Actor, Ground};

/// What every planted command would make, were it ever run.
const RAN: &str = "/tmp/the-adversary-ran";

#[track_caller]
fn assert_nothing_ran() {
    assert!(!Path::new(RAN).exists(), "a planted command was run on the host");
}

const GIT: &str = "repo/.git";

/// The agent's repository is a layer over the real one: attacks on it work, on nothing. That they would work on
/// the real one is shown without a sandbox, for there is no control without which the overlay is not there.
fn real(actor: Actor, attack: &str, arguments: Arguments) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    ground.native(attack, arguments(&ground)).assert_succeeded();
    before.assert_changed();

    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    for run in [
        ground.sandbox().write("**").apply(),
        ground.sandbox().write("**").apply().without(&["scope", "landlock"]),
        ground.sandbox().write("**").apply().without(&["scope", "landlock", "harvest"]),
    ] {
        let ended = run.attack(attack, arguments(&ground));
        ended.assert_succeeded();
        ended.assert_applied();
        assert!(ended.is_elsewhere() || ended.json()["harvest"]["changes"] == serde_json::json!([]));
        before.assert_unchanged();
    }
    assert_nothing_ran();
}

fn gitdir(ground: &Ground) -> Vec<OsString> {
    vec![ground.inside(".git")]
}

fn hooks_of_the_real_repository_stay_as_they_are(actor: Actor) {
    real(actor, "hook-plant", gitdir);
}

fn the_configuration_of_the_real_repository_stays_as_it_is(actor: Actor) {
    real(actor, "config-plant", gitdir);
}

fn attributes_of_the_real_repository_stay_as_they_are(actor: Actor) {
    real(actor, "info-attributes-plant", gitdir);
}

fn alternates_of_the_real_repository_stay_as_they_are(actor: Actor) {
    real(actor, "alternates-plant", |ground| [gitdir(ground), vec![ground.outside("git/objects")]].concat());
}

fn objects_of_the_real_repository_cannot_be_damaged(actor: Actor) {
    real(actor, "object-damage", gitdir);
}

fn packed_objects_of_the_real_repository_cannot_be_damaged(actor: Actor) {
    let packed = |actor| {
        let ground = Ground::new(actor);
        ground.git(&["repack", "-a", "-d", "--quiet"]);
        ground
    };
    let ground = packed(actor);
    let before = ground.fingerprint();
    let ended = ground.sandbox().write("**").apply().attack("object-damage", gitdir(&ground));
    ended.assert_succeeded();
    before.assert_unchanged();
    ground.git(&["fsck", "--strict"]);
}

fn a_branch_of_the_real_repository_cannot_be_deleted(actor: Actor) {
    real(actor, "ref-delete", |ground| [gitdir(ground), vec!["refs/heads/main".into()]].concat());
}

fn a_branch_of_the_real_repository_cannot_be_moved(actor: Actor) {
    let arguments: Arguments = |ground| {
        [gitdir(ground), vec!["refs/heads/main".into(), "0123456789012345678901234567890123456789".into()]]
            .concat()
    };
    real(actor, "ref-move", arguments);
}

fn the_head_of_the_real_repository_cannot_be_moved(actor: Actor) {
    real(actor, "head-move", |ground| [gitdir(ground), vec!["refs/heads/elsewhere".into()]].concat());
}

/// With git itself, as an agent would.
fn commits_and_branches_made_inside_stay_inside(actor: Actor) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    let script = "set -e; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; \
                  echo x >src/main.rs; git commit --quiet --all --message=inside; git branch other; \
                  git checkout --quiet other; git branch --quiet --delete --force main; git tag t; \
                  git config core.hooksPath /evil; git reflog expire --expire=now --all; git gc --quiet --prune=now; \
                  git log --oneline | wc -l";
    let ended = ground.sandbox().write("src/**").shell(script);
    assert_eq!((ended.code(), ended.output.stdout.as_slice()), (Some(0), &b"2\n"[..]), "{}", ended.stderr());
    before.assert_unchanged();
    assert_eq!(ground.git(&["log", "--format=%s", "--all"]), "base\n");
    ground.git(&["fsck", "--strict"]);
}

/// The common directory of a linked worktree lies outside of it.
fn the_repository_of_a_linked_worktree_stays_as_it_is(actor: Actor) {
    let ground = Ground::new(actor);
    let tree = ground.home().join("tree");
    ground.git(&["worktree", "add", "--quiet", tree.to_str().expect("text"), "-b", "linked"]);
    let common = ground.repo().join(".git");
    let run = || ground.sandbox().folder(&tree).write("**").apply();
    assert_eq!(run().shell("true").code(), Some(0));
    let before = ground.fingerprint();
    for attack in ["hook-plant", "config-plant", "object-damage", "info-attributes-plant"] {
        // A copy borrows its objects and has none of its own to damage: see `contained`.
        if actor.is_contained() && attack == "object-damage" {
            continue;
        }
        run().attack(attack, [&common]).assert_succeeded();
        before.assert_unchanged();
    }
    run().attack("ref-delete", [common.as_os_str(), "refs/heads/main".as_ref()]).assert_succeeded();
    run().attack("head-move", [common.join("worktrees/tree").as_os_str(), "refs/heads/main".as_ref()]);
    // The file that says where the repository is, too.
    run().attack("gitfile-elsewhere", [tree.as_os_str(), "/elsewhere".as_ref()]).assert_succeeded();
    before.assert_unchanged();
    assert_nothing_ran();
}

/// Repositories that are merely visible are no different from any other file outside.
fn a_repository_outside_cannot_be_changed(actor: Actor) {
    let outside: Arguments = |ground| vec![ground.outside("git")];
    let attacks = [
        ("hook-plant", outside),
        ("config-plant", outside),
        ("info-attributes-plant", outside),
        ("object-damage", outside),
        ("alternates-plant", |ground: &Ground| vec![ground.outside("git"), "/elsewhere".into()]),
        ("ref-delete", |ground: &Ground| vec![ground.outside("git"), "refs/heads/main".into()]),
        ("head-move", |ground: &Ground| vec![ground.outside("git"), "refs/heads/main".into()]),
    ];
    match actor.is_contained() {
        true => all_denied(actor, &attacks),
        false => attacks.iter().for_each(|(attack, arguments)| held(actor, attack, *arguments)),
    }
    // Out of sight, this one makes itself the folders it wants in its own private home.
    let moved: Arguments = |ground| vec![ground.outside("git"), "refs/heads/main".into(), "4567".into()];
    shown_without(actor, HOST, "ref-move", moved);
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    ground.sandbox().attack("ref-move", moved(&ground));
    ground.sandbox().read(ground.outside_folder()).attack("ref-move", moved(&ground)).assert_denied();
    before.assert_unchanged();
}

/// Left in the scope, it must be refused, even with a scope of everything.
fn planted(actor: Actor, attack: &str, arguments: &[&str], path: &str, reason: &str) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    let ended = ground.sandbox().write("**").apply().attack(attack, arguments);
    ended.assert_succeeded();
    ended.assert_refused(path, reason);
    before.assert_unchanged();
    assert_nothing_ran();
}

fn a_nested_repository_is_refused(actor: Actor) {
    planted(actor, "nested-repository", &["src"], "src/nested/.git", "nested_git");
}

fn a_planted_submodule_is_refused(actor: Actor) {
    planted(actor, "submodule-plant", &["."], ".gitmodules", "control_file");
    planted(actor, "submodule-plant", &["src"], "src/planted/.git", "nested_git");
}

fn a_repository_in_a_folder_is_refused(actor: Actor) {
    planted(actor, "git-init", &["src/inner"], "src/inner/.git", "nested_git");
}

fn a_file_that_says_where_a_repository_is_is_refused(actor: Actor) {
    planted(actor, "gitfile-elsewhere", &["src", "/elsewhere"], "src/.git", "nested_git");
}

fn names_that_some_filesystem_takes_for_a_repository_are_refused(actor: Actor) {
    let ground = Ground::new(actor);
    let before = ground.fingerprint();
    for name in [".GIT", ".Git", ".gIt", "git~1", ".git ", ".git.", ".g\u{200c}it", ".git::$INDEX_ALLOCATION"]
    {
        let ended = ground
            .sandbox()
            .write("**")
            .apply()
            .shell(&format!("mkdir 'src/{name}' && echo x >'src/{name}/config'"));
        ended.assert_refused(&format!("src/{name}").replace('\u{200c}', "\\u{200c}"), "nested_git");
    }
    before.assert_unchanged();
}

/// Makes `src/fixtures` a repository whose configuration starts a program, in three parts.
fn parts_of_a_repository(mark: &Path) -> [String; 3] {
    let config = format!(
        "[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = ..\\n\\tfsmonitor = \\\"touch {}; false\\\"\\n",
        mark.display()
    );
    [
        "mkdir -p src/fixtures && printf 'ref: refs/heads/main\\n' >src/fixtures/HEAD".to_owned(),
        "mkdir -p src/fixtures/objects src/fixtures/refs && touch src/fixtures/objects/x src/fixtures/refs/x"
            .to_owned(),
        format!("mkdir -p src/fixtures && printf \"{config}\" >src/fixtures/config"),
    ]
}

/// Git needs no `.git` to take a folder for a repository and obey its configuration: `HEAD`, `objects` and `refs` do.
fn a_repository_under_another_name_is_refused(actor: Actor) {
    let ground = Ground::new(actor);
    let mark = ground.home().join("ran");
    let [head, rest, config] = parts_of_a_repository(&mark);
    // Without a sandbox it works: the next `git status` in that folder starts the program.
    let script = format!("{head} && {rest} && {config}");
    assert!(ground.command("/bin/sh").args(["-c", &script]).status().expect("a shell").success());
    let status = ground.command("git").arg("status").current_dir(ground.real("src/fixtures")).output();
    assert!(mark.exists(), "{status:?}");
    fs::remove_file(&mark).and_then(|()| fs::remove_dir_all(ground.real("src/fixtures"))).expect("removed");

    let before = ground.fingerprint();
    let run = || ground.sandbox().write("src/**").apply();
    run().shell(&script).assert_refused("src/fixtures", "repository");
    run()
        .shell(&script.replace("HEAD", "Head").replace("/refs", "/REFS"))
        .assert_refused("src/fixtures", "repository");
    run()
        .shell(&format!("{script}; mv src/fixtures src/inner/x"))
        .assert_refused("src/inner/x", "repository");
    let linked = "mkdir src/w && echo ../../.git >src/w/commondir && echo 'ref: refs/heads/main' >src/w/HEAD";
    run().shell(linked).assert_refused("src/w", "repository");
    ground
        .sandbox()
        .write("**")
        .apply()
        .shell("mkdir objects refs && touch HEAD objects/x refs/x")
        .assert_refused(".", "repository");
    before.assert_unchanged();

    // In two steps: what one task may add, the next can't complete.
    run().shell(&format!("{rest} && {config}")).assert_applied();
    let before = ground.fingerprint();
    run().shell(&head).assert_refused("src/fixtures", "repository");
    before.assert_unchanged();
    // And where there is one already, work goes on beside it, and not in it.
    assert!(ground.command("/bin/sh").args(["-c", &head]).status().expect("a shell").success());
    run().shell("echo x >src/beside").assert_applied();
    run().shell("echo x >>src/fixtures/config").assert_refused("src/fixtures", "repository");
    run().shell("rm -r src/fixtures").assert_refused("src/fixtures", "repository");
}

fn planted_attributes_are_refused(actor: Actor) {
    planted(actor, "attributes-plant", &["."], ".gitattributes", "control_file");
    planted(actor, "attributes-plant", &["src"], "src/.gitattributes", "control_file");
    // Named exactly, they are work like any other.
    let ground = Ground::new(actor);
    let run = ground.sandbox().write(".gitattributes").apply();
    run.attack("attributes-plant", ["."]).assert_applied();
}

/// `git init` where there was no repository: the workspace is a plain folder.
fn a_repository_where_there_was_none_does_not_land(actor: Actor) {
    let ground = Ground::without_repository(actor);
    let run = || ground.sandbox().write("**").apply();
    assert_eq!(run().shell("true").code(), Some(0));
    let contents = |folder: PathBuf| agency_tests::tree::Tree::of(&folder).expect("read");
    let before = contents(ground.repo());
    // The one at the top is the agent's own, as in a repository: it is never part of the work.
    run().attack("git-init", ["."]).assert_succeeded();
    run().attack("gitfile-elsewhere", [".", "/elsewhere"]).assert_succeeded();
    let ended = run().attack("git-init", ["src"]);
    ended.assert_refused("src/.git", "nested_git");
    let changes = before.diff(&contents(ground.repo()));
    assert!(changes.is_empty(), "{changes:?}");
    assert_nothing_ran();
}

/// The real repository's own configuration is hostile here: whatever `agency` does, it must not run it.
fn a_hostile_configuration_of_the_repository_runs_nothing(actor: Actor) {
    let ground = Ground::new(actor);
    ground.native("config-plant", gitdir(&ground)).assert_succeeded();
    ground.native("hook-plant", gitdir(&ground)).assert_succeeded();
    ground.native("info-attributes-plant", gitdir(&ground)).assert_succeeded();
    ground.native("attributes-plant", [ground.repo().into()]).assert_succeeded();
    // A place of this test's own for what would be run to show itself.
    let ran = ground.home().join("ran");
    for name in [".git/config", ".git/hooks/post-checkout", ".git/hooks/pre-commit"] {
        let path = ground.repo().join(name);
        let text = fs::read_to_string(&path).expect("read").replace(RAN, ran.to_str().expect("text"));
        fs::write(&path, text).expect("written");
    }
    // It would run if anybody asked git in the ordinary way.
    let output = ground.command("git").args(["status"]).output().expect("git starts");
    assert!(ran.exists(), "{output:?}");
    fs::remove_file(&ran).expect("removed");

    ground.sandbox().write("src/**").apply().shell("echo changed >src/main.rs").assert_applied();
    let patch = ground.home().join("work.patch");
    let run = ground.sandbox().write("src/**").option("--patch", &patch).flag("--json");
    let ended = run.shell("echo again >src/main.rs");
    assert_eq!(ended.json()["result"], "patched", "{}", ended.stderr());
    assert!(fs::read_to_string(patch).expect("read").contains("+again"));
    assert!(!ran.exists(), "the repository's configuration was obeyed");
    // Inside, too, the configuration is another.
    let ended =
        ground.sandbox().shell("git status --short >/dev/null; ls ~/ran; git config --get core.fsmonitor");
    assert_eq!(ended.output.stdout, b"false\n", "{}", ended.stderr());
}

/// Tokens in the addresses of remotes, headers and helpers: in the repository's configuration, and in those of its
/// submodules and worktrees, which lie below it.
fn credentials_in_configurations_of_the_repository_are_not_shown(actor: Actor) {
    let ground = Ground::new(actor);
    let configurations = [
        "config",
        "config.worktree",
        "modules/sub/config",
        "modules/a/modules/b/config",
        "worktrees/w/config.worktree",
    ];
    for name in configurations {
        let path = ground.repo().join(".git").join(name);
        let text = fs::read_to_string(&path).unwrap_or_default();
        let secret = "[remote \"origin\"]\n\turl = https://me:t0ken-value@host/x\n\
                      [http \"https://host/\"]\n\textraHeader = Authorization: t0ken-value\n";
        ground.put(&format!("{GIT}/{name}"), &format!("{text}{secret}"));
    }
    let before = ground.fingerprint();
    let ended = ground.sandbox().shell("grep -rl t0ken-value .git");
    let seen = String::from_utf8_lossy(&ended.output.stdout).into_owned();
    assert!(seen.is_empty(), "the agent sees the token in:\n{seen}");
    before.assert_unchanged();
}

/// Where runs keep their files is none of an agent's business.
fn the_state_of_runs_is_out_of_sight(actor: Actor) {
    let ground = Ground::new(actor);
    let state = ground.state();
    let before = ground.fingerprint();
    ground.native("read-dir", [state.clone().into()]).assert_succeeded();
    let run = || ground.sandbox().write("**").apply();
    run().attack("read-dir", [&state]).assert_denied();
    run().attack("create", [state.join("new")]).assert_denied();
    run().attack("delete", [state.join("sandboxes")]).assert_denied();
    run().attack("rename", [&state, &state.with_extension("moved")]).assert_denied();
    assert!(!state.join("new").exists() && state.is_dir());
    before.assert_unchanged();
}

as_both! {
    credentials_in_configurations_of_the_repository_are_not_shown,
    the_state_of_runs_is_out_of_sight,
    hooks_of_the_real_repository_stay_as_they_are,
    the_configuration_of_the_real_repository_stays_as_it_is,
    attributes_of_the_real_repository_stay_as_they_are,
    alternates_of_the_real_repository_stay_as_they_are,
    objects_of_the_real_repository_cannot_be_damaged,
    packed_objects_of_the_real_repository_cannot_be_damaged,
    a_branch_of_the_real_repository_cannot_be_deleted,
    a_branch_of_the_real_repository_cannot_be_moved,
    the_head_of_the_real_repository_cannot_be_moved,
    commits_and_branches_made_inside_stay_inside,
    the_repository_of_a_linked_worktree_stays_as_it_is,
    a_repository_outside_cannot_be_changed,
    a_nested_repository_is_refused,
    a_planted_submodule_is_refused,
    a_repository_in_a_folder_is_refused,
    a_repository_under_another_name_is_refused,
    a_file_that_says_where_a_repository_is_is_refused,
    names_that_some_filesystem_takes_for_a_repository_are_refused,
    planted_attributes_are_refused,
    a_repository_where_there_was_none_does_not_land,
    a_hostile_configuration_of_the_repository_runs_nothing,
}
