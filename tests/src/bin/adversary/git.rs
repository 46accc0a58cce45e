//! Making somebody else's git run or believe something. Plain writes do; git itself is not needed.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::attack::{Args, Attack, Attempt, Failure, Step, attack};

const GROUP: &str = "git";
const REAL: &str = "hooks, config, attributes, alternates, packed objects of the real repository";
const NESTED: &str = "a nested repository or submodule with its own hooks";
const RUNS: &str = "configuration that makes our git run something";
const BRANCHES: &str = "committing on, moving or deleting the real branches";

pub(crate) const ATTACKS: &[Attack] = &[
    attack(GROUP, "hook-plant", &["gitdir"], REAL, hook_plant),
    attack(GROUP, "config-plant", &["gitdir"], RUNS, config_plant),
    attack(GROUP, "alternates-plant", &["gitdir", "objects"], REAL, alternates_plant),
    attack(GROUP, "info-attributes-plant", &["gitdir"], REAL, info_attributes_plant),
    attack(GROUP, "object-damage", &["gitdir"], REAL, object_damage),
    attack(GROUP, "ref-delete", &["gitdir", "ref"], BRANCHES, ref_delete),
    attack(GROUP, "ref-move", &["gitdir", "ref", "id"], BRANCHES, ref_move),
    attack(GROUP, "head-move", &["gitdir", "ref"], BRANCHES, head_move),
    attack(GROUP, "nested-repository", &["dir"], NESTED, nested_repository),
    attack(GROUP, "submodule-plant", &["dir"], NESTED, submodule_plant),
    attack(GROUP, "git-init", &["dir"], "`git init` where there was none", git_init),
    attack(
        GROUP,
        "gitfile-elsewhere",
        &["dir", "target"],
        "a `.git` file that points elsewhere",
        gitfile_elsewhere,
    ),
    attack(GROUP, "attributes-plant", &["dir"], RUNS, attributes_plant),
];

/// What a planted command would do; no test ever lets it run.
const COMMAND: &str = "touch /tmp/the-adversary-ran";
/// Every setting through which git starts a program of the configuration's choosing.
const CONFIG: &str = "\n[core]\n\tfsmonitor = touch /tmp/the-adversary-ran\n\thooksPath = adversary-hooks\n\
    \tpager = touch /tmp/the-adversary-ran\n\tsshCommand = touch /tmp/the-adversary-ran\n\
    [diff]\n\texternal = touch /tmp/the-adversary-ran\n\
    [diff \"adversary\"]\n\ttextconv = touch /tmp/the-adversary-ran\n\
    [filter \"adversary\"]\n\tclean = touch /tmp/the-adversary-ran\n\tsmudge = touch /tmp/the-adversary-ran\n\
    [merge \"adversary\"]\n\tdriver = touch /tmp/the-adversary-ran\n";
const ATTRIBUTES: &str = "* filter=adversary diff=adversary merge=adversary\n";

fn append(path: &Path, text: &str) -> Result<(), Failure> {
    let what = format!("open {}", path.display());
    let mut file = OpenOptions::new().append(true).create(true).open(path).step(what)?;
    file.write_all(text.as_bytes()).step("write")
}

fn hook(gitdir: &Path, name: &str) -> Result<PathBuf, Failure> {
    let hooks = gitdir.join("hooks");
    if !hooks.is_dir() {
        fs::create_dir(&hooks).step("make the hooks directory")?;
    }
    let path = hooks.join(name);
    fs::write(&path, format!("#!/bin/sh\n{COMMAND}\n")).step("write the hook")?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).step("make the hook executable")?;
    Ok(path)
}

fn hook_plant(args: &Args) -> Attempt {
    for name in ["pre-commit", "post-checkout", "post-merge", "reference-transaction"] {
        hook(args.path(0), name)?;
    }
    Ok("four hooks".to_owned())
}

fn config_plant(args: &Args) -> Attempt {
    append(&args.path(0).join("config"), CONFIG)?;
    Ok("configured".to_owned())
}

fn alternates_plant(args: &Args) -> Attempt {
    let info = args.path(0).join("objects/info");
    if !info.is_dir() {
        fs::create_dir(&info).step("make objects/info")?;
    }
    append(&info.join("alternates"), &format!("{}\n", args.path(1).display()))?;
    Ok("objects are also looked for elsewhere".to_owned())
}

fn info_attributes_plant(args: &Args) -> Attempt {
    let info = args.path(0).join("info");
    if !info.is_dir() {
        fs::create_dir(&info).step("make info")?;
    }
    append(&info.join("attributes"), ATTRIBUTES)?;
    Ok("every file is filtered".to_owned())
}

/// Git makes objects read-only, so this takes two steps: the mode, then the content.
fn object_damage(args: &Args) -> Attempt {
    let object = first_object(&args.path(0).join("objects"))?;
    fs::set_permissions(&object, fs::Permissions::from_mode(0o644)).step("make the object writable")?;
    let mut file = OpenOptions::new().write(true).open(&object).step("open the object")?;
    file.write_all(b"damaged").step("write")?;
    Ok(format!("damaged {}", object.display()))
}

fn first_object(objects: &Path) -> Result<PathBuf, Failure> {
    for entry in fs::read_dir(objects).step("list the objects")? {
        let directory = entry.step("list the objects")?.path();
        if directory.file_name().is_some_and(|name| name == "info") || !directory.is_dir() {
            continue;
        }
        if let Some(object) = fs::read_dir(&directory).step("list a folder of objects")?.next() {
            return Ok(object.step("list a folder of objects")?.path());
        }
    }
    Err(Failure::Mistake("there is no object to damage".to_owned()))
}

/// From its own file and from the packed ones; either is enough for it to be there.
fn ref_delete(args: &Args) -> Attempt {
    let (gitdir, name) = (args.path(0), args.text(1)?);
    let loose = gitdir.join(name);
    let mut deleted = false;
    if loose.exists() {
        fs::remove_file(&loose).step("unlink the ref")?;
        deleted = true;
    }
    let packed = gitdir.join("packed-refs");
    if let Ok(text) = fs::read_to_string(&packed) {
        let kept: String =
            text.lines().filter(|line| !line.ends_with(name)).map(|line| format!("{line}\n")).collect();
        if kept != text {
            fs::write(&packed, kept).step("rewrite packed-refs")?;
            deleted = true;
        }
    }
    if deleted { Ok(format!("{name} is gone")) } else { Err(Failure::Held(format!("{name} is not there"))) }
}

fn ref_move(args: &Args) -> Attempt {
    let path = args.path(0).join(args.text(1)?);
    if let Some(above) = path.parent().filter(|above| !above.is_dir()) {
        fs::create_dir_all(above).step("make the folder of the ref")?;
    }
    fs::write(&path, format!("{}\n", args.text(2)?)).step("write the ref")?;
    Ok("moved".to_owned())
}

fn head_move(args: &Args) -> Attempt {
    fs::write(args.path(0).join("HEAD"), format!("ref: {}\n", args.text(1)?)).step("write HEAD")?;
    Ok("HEAD points elsewhere".to_owned())
}

/// What git takes for a repository, with everything in it that runs.
fn repository(gitdir: &Path) -> Result<(), Failure> {
    for directory in ["objects/info", "objects/pack", "refs/heads", "refs/tags"] {
        fs::create_dir_all(gitdir.join(directory)).step(format!("make {directory}"))?;
    }
    fs::write(gitdir.join("HEAD"), "ref: refs/heads/main\n").step("write HEAD")?;
    fs::write(gitdir.join("config"), format!("[core]\n\trepositoryformatversion = 0\n{CONFIG}"))
        .step("write config")?;
    hook(gitdir, "post-checkout").map(drop)
}

fn nested_repository(args: &Args) -> Attempt {
    repository(&args.path(0).join("nested/.git"))?;
    fs::write(args.path(0).join("nested/file"), "nested\n").step("write beside it")?;
    Ok("nested/.git".to_owned())
}

fn submodule_plant(args: &Args) -> Attempt {
    let directory = args.path(0);
    append(
        &directory.join(".gitmodules"),
        "[submodule \"planted\"]\n\tpath = planted\n\turl = ./planted\n\tupdate = !touch /tmp/the-adversary-ran\n",
    )?;
    repository(&directory.join("planted/.git"))?;
    Ok("a submodule whose update is a command".to_owned())
}

fn git_init(args: &Args) -> Attempt {
    let gitdir = args.path(0).join(".git");
    if gitdir.exists() {
        return Err(Failure::Held("there is a repository already".to_owned()));
    }
    repository(&gitdir)?;
    Ok("a repository".to_owned())
}

fn gitfile_elsewhere(args: &Args) -> Attempt {
    let gitfile = args.path(0).join(".git");
    if gitfile.is_dir() {
        fs::rename(&gitfile, args.path(0).join(".git.moved")).step("move the repository away")?;
    }
    fs::write(&gitfile, format!("gitdir: {}\n", args.path(1).display())).step("write .git")?;
    Ok("it points elsewhere".to_owned())
}

fn attributes_plant(args: &Args) -> Attempt {
    append(&args.path(0).join(".gitattributes"), ATTRIBUTES)?;
    Ok("every file is filtered".to_owned())
}
