//! What is lying around: variables, the home, other people's files, and what the process is.

use std::ffi::OsString;
use std::fs;

use crate::as_both;
use crate::ground::{Actor, Ground};
use crate::run::{Attack, Sandbox};

const SECRETS: &[(&str, &str)] = &[
    ("AWS_SECRET_ACCESS_KEY", "aws-secret-value"),
    ("GITHUB_TOKEN", "github-secret-value"),
    ("DATABASE_URL", "postgres://me:database-secret@host/x"),
    ("SSH_AUTH_SOCK", "/tmp/agent.sock"),
    ("ANTHROPIC_API_KEY", "anthropic-secret-value"),
    ("LD_PRELOAD", ""),
    ("GIT_DIR", "/elsewhere"),
    ("BASH_ENV", "/elsewhere"),
];

fn secrets_of_the_environment_are_not_passed(actor: Actor) {
    let ground = Ground::new(actor);
    let run = || SECRETS.iter().fold(ground.sandbox(), |run, (name, value)| run.variable(name, value));
    let each: Vec<Attack<'_>> =
        SECRETS.iter().map(|(name, _)| ("environment", vec![OsString::from(name)])).collect();
    run().without(&["environment"]).succeed_all(&each);
    run().deny_all(&each);
    // One that is named brings no other along.
    for (name, _) in SECRETS.iter().take(if actor.is_contained() { 2 } else { SECRETS.len() }) {
        let (named, others): (Vec<_>, Vec<_>) = each.iter().cloned().partition(|(_, of)| of[0] == *name);
        run().option("--env", name).succeed_all(&named);
        if actor.is_contained() {
            run().option("--env", name).deny_all(&others);
        }
    }
    let names = run().attack("env-dump", [""; 0]).assert_succeeded().detail;
    let expected = ["HOME", "PATH", "SHELL", "TMPDIR", "USER"];
    let as_well = ["LOGNAME", "TMP", "TEMP"];
    let names: Vec<&str> = names.split(' ').filter(|name| !as_well.contains(name)).collect();
    assert_eq!(names, expected);
}

fn the_home_holds_nothing_but_the_workspace(actor: Actor) {
    let ground = Ground::new(actor);
    let names = |detail: String| detail.rsplit(": ").next().unwrap_or_default().to_owned();
    let open = actor.off(&["private-home"]);
    let shown = ground.sandbox().without(&open).attack("home-empty", [""; 0]);
    assert!(shown.is_elsewhere() || names(shown.assert_succeeded().detail) == ".ssh outside repo");
    let held = ground.sandbox().attack("home-empty", [""; 0]).report();
    // And what a login shell reads, which has the PATH and nothing else.
    assert_eq!(names(held.detail), if actor.is_bare() { ".profile" } else { ".profile repo" });
    let only = "test $(wc -l < ~/.profile) = 1 && grep -q \"^export PATH='[^']*'$\" ~/.profile";
    assert_eq!(ground.sandbox().shell(only).code(), Some(0));
    // What it leaves there goes with it.
    let before = ground.fingerprint();
    assert_eq!(ground.sandbox().shell("echo x >~/.bashrc && mkdir ~/outside").code(), Some(0));
    before.assert_unchanged();
    assert_eq!(ground.sandbox().shell("test -e ~/.bashrc").code(), Some(1));
}

fn files_in_temporary_folders_of_the_host_are_not_there(actor: Actor) {
    let ground = Ground::new(actor);
    for folder in ["/tmp", "/var/tmp", "/dev/shm"] {
        let marker = tempfile::Builder::new().prefix("agency-marker-").tempfile_in(folder).expect("a file");
        let open = actor.off(&["private-tmp", "private-home", "tmp-size", "read-only-host"]);
        ground.sandbox().without(&open).attack("tmp-private", [marker.path()]).assert_succeeded();
        ground.sandbox().attack("tmp-private", [marker.path()]).assert_denied();
        // Nor the other way round.
        let new = marker.path().with_extension("new");
        ground.sandbox().attack("create", [&new]).assert_succeeded();
        assert!(!new.exists());
    }
}

fn credentials_in_well_known_places_are_not_there(actor: Actor) {
    let ground = Ground::new(actor);
    for name in [".netrc", ".aws/credentials", ".docker/config.json", ".cargo/credentials.toml"] {
        ground.put(name, "secret\n");
    }
    let open = actor.off(&["private-home", "hidden-paths", "private-tmp", "tmp-size", "read-only-host"]);
    let ended = ground.sandbox().without(&open).attack("secrets-scan", [""; 0]);
    let shown = ended.assert_succeeded();
    let complete = shown.detail.contains(".netrc") && shown.detail.contains("id_rsa");
    assert!(ended.is_elsewhere() || complete, "{shown:?}");
    ground.sandbox().attack("secrets-scan", [""; 0]).assert_denied();
    ground.sandbox().without(&["landlock", "seccomp"]).attack("secrets-scan", [""; 0]).assert_denied();
    // The toolchain around a credential is there, the credential is not.
    let run = ground.sandbox();
    let there = match actor.is_contained() {
        false => "cd \"${CARGO_HOME:-$HOME/.cargo}\" && ! cat credentials.toml",
        // An image has its own toolchains; of the host's there is nothing.
        true => "test -d \"$HOME\" && test ! -e \"$HOME/.cargo\"",
    };
    assert_eq!(run.shell(there).code(), Some(0));
    // Toolchains that keep theirs beside what has to be seen.
    for name in [".local/share/uv/credentials/credentials.toml", ".cargo/credentials"] {
        ground.put(name, "secret\n");
        run.attack("read", [ground.home().join(name)]).assert_denied();
    }
    for file in ["/etc/shadow", "/etc/gshadow", "/etc/sudoers"] {
        run.attack("read", [file]).assert_denied();
    }
}

/// A configuration is needed to build, and the token in it is not.
fn credentials_in_configurations_of_toolchains_are_not_shown(actor: Actor) {
    let ground = Ground::new(actor);
    let text = "[registry]\ntoken = \"s3cret\"\n[build]\njobs = 2\n[http]\nproxy = \"me:s3cret@proxy:1\"\n";
    ground.put(".cargo/config.toml", text);
    ground.put(".cargo/registry/kept", "kept\n");
    let others = [".nvm/versions/node/v1/etc/npmrc", ".pyenv/versions/3/pip.conf", ".pyenv/.git/config"];
    others.iter().for_each(|name| drop(ground.put(name, "s3cret\n")));
    let script = "cd \"${CARGO_HOME:-$HOME/.cargo}\" && cat config.toml registry/kept; true";
    let shown = |run: Sandbox<'_>| String::from_utf8_lossy(&run.shell(script).output.stdout).into_owned();
    let open = actor.off(&["private-home", "hidden-paths", "private-tmp", "tmp-size", "read-only-host"]);
    let opened = ground.sandbox().without(&open);
    assert!(opened.is_shown_elsewhere() || shown(opened).contains("s3cret"));
    let text = shown(ground.sandbox());
    let expected = !actor.is_contained();
    assert_eq!(
        text.contains("jobs = 2") && text.contains("proxy:1") && text.contains("kept"),
        expected,
        "{text}"
    );
    assert!(!text.contains("s3cret"), "{text}");
    for name in others.iter().chain(&[".cargo/config.toml"]) {
        let script = format!("cat '{}' 2>/dev/null; true", ground.home().join(name).display());
        let text = String::from_utf8_lossy(&ground.sandbox().shell(&script).output.stdout).into_owned();
        assert!(!text.contains("s3cret"), "{name}: {text}");
    }
}

/// Ignored files with names that mean secrets are in the workspace, and out of sight.
fn ignored_secrets_of_the_workspace_are_hidden(actor: Actor) {
    let ground = Ground::new(actor);
    ground.put("repo/.gitignore", ".env\n*.pem\n/private/\n");
    for name in ["repo/.env", "repo/key.pem", "repo/src/.env"] {
        ground.put(name, "SECRET=1\n");
    }
    let before = ground.fingerprint();
    for name in [".env", "key.pem", "src/.env"] {
        ground.native("read", [name.into()]).assert_succeeded();
        ground.sandbox().write("**").apply().deny_all(&[
            ("read", vec![name.into()]),
            ("reopen-fd", vec![name.into()]),
            ("hardlink-in", vec![name.into(), "src/copy".into()]),
            ("rename", vec![name.into(), "src/copy".into()]),
            ("write", vec![name.into()]),
            ("delete", vec![name.into()]),
        ]);
    }
    // Not through what the private repository may know of them, nor its work tree.
    let ended = ground.sandbox().write("**").shell("git add --force .env; git show :.env");
    assert!(!String::from_utf8_lossy(&ended.output.stdout).contains("SECRET"), "{:?}", ended.output);
    before.assert_unchanged();
}

fn the_process_is_nobody_and_can_do_nothing(actor: Actor) {
    let ground = Ground::new(actor);
    let own = |name: &str| fs::read_link(format!("/proc/self/ns/{name}")).expect("a namespace");
    let detail = ground.sandbox().attack("whoami", [""; 0]).assert_succeeded().detail;
    let fact = |name: &str| {
        let found = detail.split(' ').find_map(|fact| fact.strip_prefix(&format!("{name}=")));
        found.unwrap_or_else(|| panic!("no {name} in {detail}")).to_owned()
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(fact(set), "0000000000000000", "{set}");
    }
    // An engine puts a user's own group among those it has besides.
    let own_group = fact("Gid").split(',').next().unwrap_or_default().to_owned();
    let groups = if actor.is_contained() { own_group.as_str() } else { "" };
    assert_eq!(
        (fact("NoNewPrivs").as_str(), fact("Seccomp").as_str(), fact("Groups").as_str()),
        ("1", "2", groups)
    );
    for name in ["user", "mnt", "net", "pid"] {
        // An engine makes no user namespace.
        if actor.is_contained() && name == "user" {
            assert_eq!(fact("ns_user"), own("user").to_string_lossy());
            continue;
        }
        assert_ne!(fact(&format!("ns_{name}")), own(name).to_string_lossy(), "{name}");
    }
    assert!(!fact("Uid").contains("0,0"), "{detail}");
    // With what the agent gives up left to it, the same question has another answer.
    let open = ["capabilities", "no-new-privileges", "seccomp", "landlock", "network"];
    let detail = ground.sandbox().without(&open).attack("whoami", [""; 0]).assert_succeeded().detail;
    assert!(detail.contains("NoNewPrivs=0") && detail.contains("Seccomp=0"), "{detail}");
}

as_both! {
    secrets_of_the_environment_are_not_passed,
    the_home_holds_nothing_but_the_workspace,
    files_in_temporary_folders_of_the_host_are_not_there,
    credentials_in_well_known_places_are_not_there,
    credentials_in_configurations_of_toolchains_are_not_shown,
    ignored_secrets_of_the_workspace_are_hidden,
    the_process_is_nobody_and_can_do_nothing,
}
