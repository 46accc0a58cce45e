//! Where a program is, and what has to be shown to an agent so that it can be started in a sandbox.

use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use agency_sandbox::host::HostUser;

/// As many links as are followed on the way to a Python.
const LINKS: usize = 16;

/// A program on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InstalledProgram {
    /// Where it was found, and what is started: the end of a link that can't be shown.
    pub(crate) path: PathBuf,
    pub(crate) start: PathBuf,
    /// Folders and files that are not seen in a sandbox by themselves.
    pub(crate) needs: Vec<PathBuf>,
}

/// Whether a program is to be looked for here: a name, or a whole path. Others are found in the workspace.
pub(crate) fn is_host_program(program: &str) -> bool {
    !program.contains('{') && (program.starts_with('/') || !program.contains('/'))
}

/// Looks for a program as a shell would.
pub(crate) fn find(program: &str, host: &HostUser) -> Option<InstalledProgram> {
    let path = match program.contains('/') {
        true => PathBuf::from(program),
        false => std::env::split_paths(&std::env::var_os("PATH")?)
            .filter(|folder| folder.is_absolute())
            .map(|folder| folder.join(program))
            .find(|path| is_program(path))?,
    };
    let real = path.canonicalize().ok().filter(|path| is_program(path))?;
    let mut needs = Vec::new();
    if !host.is_visible_by_default(&real) {
        let home = home(&real, host).unwrap_or_else(|| real.clone());
        needs.extend(interpreters(&home, host).into_iter().filter(|path| !host.is_visible_by_default(path)));
        needs.push(home);
    }
    let is_seen = host.is_visible_by_default(&path) || needs.iter().any(|folder| path.starts_with(folder));
    let start = if is_seen { path.clone() } else { real };
    Some(InstalledProgram { path, start, needs })
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// The folder a program is installed in, with everything it needs: the packages of npm, or an environment of Python.
fn home(path: &Path, host: &HostUser) -> Option<PathBuf> {
    let packages = path.ancestors().filter(|folder| folder.ends_with("node_modules")).last();
    let environment = || path.ancestors().skip(1).find(|folder| folder.join("pyvenv.cfg").is_file());
    packages.or_else(environment).filter(|folder| may_be_shown(folder, host)).map(Path::to_owned)
}

/// Where the Python is installed that an environment was made with. What the environment says of it is not trusted: we
/// follow its own program, link by link, to folders that have a Python's library. A link on the way leads through such a
/// folder too (`opt/python` of Homebrew), and is followed again inside.
fn interpreters(environment: &Path, host: &HostUser) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut program = environment.join("bin/python");
    let last = program.canonicalize().ok();
    let mut add = |program: &Path| {
        let prefix = program.parent().filter(|folder| folder.ends_with("bin")).and_then(Path::parent);
        // By its name and by where that leads: a link to a home is a home.
        let shown = |prefix: &Path| {
            let real = prefix.canonicalize();
            real.is_ok_and(|real| may_be_shown(&real, host)) && may_be_shown(prefix, host)
        };
        let prefix = prefix.filter(|prefix| has_library(prefix) && shown(prefix));
        if let Some(prefix) = prefix.filter(|prefix| *prefix != environment)
            && !found.iter().any(|known| known == prefix)
        {
            found.push(prefix.to_owned());
        }
    };
    for _ in 0..LINKS {
        let Ok(target) = program.read_link() else { break };
        program = program.parent().map(|folder| folder.join(&target)).unwrap_or(target);
        // A path with `..` in it is not shown by its name: where it ends is.
        if !program.components().any(|part| part == Component::ParentDir) {
            add(&program);
        }
    }
    last.iter().for_each(|program| add(program));
    found
}

fn has_library(prefix: &Path) -> bool {
    let entries = std::fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("python"))
}

/// A folder of its own: neither a home, nor one that everything of a home lies in.
fn may_be_shown(folder: &Path, host: &HostUser) -> bool {
    let shared = ["", ".local", ".local/share", ".config", ".cache"].map(|name| host.home.join(name));
    !host.home.starts_with(folder) && !shared.iter().any(|shared| shared == folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(path: &Path) {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, "#!/bin/sh\n").expect("written");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("set");
    }

    #[test]
    fn a_program_is_shown_with_the_folder_it_is_installed_in() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("a path");
        let host = HostUser { uid: 1000, gid: 1000, home: root.join("home") };
        let found = |path: &str| find(&root.join(path).display().to_string(), &host).map(|found| found.needs);

        program(&root.join("npm/node_modules/@x/codex/bin/codex.js"));
        std::fs::create_dir_all(root.join("npm/node_modules/.bin")).expect("made");
        std::os::unix::fs::symlink("../@x/codex/bin/codex.js", root.join("npm/node_modules/.bin/codex"))
            .expect("linked");
        assert_eq!(found("npm/node_modules/.bin/codex"), Some(vec![root.join("npm/node_modules")]));

        program(&root.join("venv/bin/mini"));
        program(&root.join("python/bin/python3"));
        std::fs::create_dir_all(root.join("python/lib/python3.11")).expect("made");
        std::os::unix::fs::symlink("../../python/bin/python3", root.join("venv/bin/python")).expect("linked");
        std::fs::write(root.join("venv/pyvenv.cfg"), "home = /\n").expect("written");
        assert_eq!(found("venv/bin/mini"), Some(vec![root.join("python"), root.join("venv")]));

        // A Python behind a link, as Homebrew has it: both of its names lead somewhere.
        program(&root.join("Cellar/python/3.12/bin/python3.12"));
        std::fs::create_dir_all(root.join("Cellar/python/3.12/lib/python3.12")).expect("made");
        std::fs::create_dir_all(root.join("opt")).expect("made");
        std::os::unix::fs::symlink(root.join("Cellar/python/3.12"), root.join("opt/python")).expect("linked");
        program(&root.join("pipx/bin/aider"));
        std::fs::write(root.join("pipx/pyvenv.cfg"), "").expect("written");
        std::os::unix::fs::symlink("python3", root.join("pipx/bin/python")).expect("linked");
        std::os::unix::fs::symlink(root.join("opt/python/bin/python3.12"), root.join("pipx/bin/python3"))
            .expect("linked");
        let needed = ["opt/python", "Cellar/python/3.12", "pipx"].map(|name| root.join(name));
        assert_eq!(found("pipx/bin/aider"), Some(needed.to_vec()));

        // A link that leads to a home shows nothing of it.
        program(&root.join("home/bin/python3"));
        std::fs::create_dir_all(root.join("home/lib/python3.12")).expect("made");
        std::os::unix::fs::symlink(root.join("home"), root.join("innocent")).expect("linked");
        program(&root.join("odd/bin/tool"));
        std::fs::write(root.join("odd/pyvenv.cfg"), "").expect("written");
        std::os::unix::fs::symlink(root.join("innocent/bin/python3"), root.join("odd/bin/python"))
            .expect("linked");
        assert_eq!(found("odd/bin/tool"), Some(vec![root.join("odd")]));

        // A link from elsewhere is not shown; what it leads to is started.
        std::fs::create_dir_all(root.join("links")).expect("made");
        std::os::unix::fs::symlink("../npm/node_modules/@x/codex/bin/codex.js", root.join("links/codex"))
            .expect("linked");
        let linked = find(&root.join("links/codex").display().to_string(), &host).expect("found");
        assert_eq!(linked.start, root.join("npm/node_modules/@x/codex/bin/codex.js"));
        assert_eq!(linked.needs, [root.join("npm/node_modules")]);

        // Nothing makes a whole home visible.
        program(&root.join("home/.local/bin/tool"));
        std::fs::write(root.join("home/.local/pyvenv.cfg"), "").expect("written");
        assert!(!may_be_shown(&root.join("home/.local"), &host) && !may_be_shown(&root, &host));
        assert_eq!(home(&root.join("home/.local/bin/tool"), &host), None);

        program(&root.join("alone"));
        assert_eq!(found("alone"), Some(vec![root.join("alone")]));
        assert_eq!(found("nowhere"), None);
        std::fs::write(root.join("text"), "").expect("written");
        assert_eq!(found("text"), None, "it can't be run");
        assert_eq!(
            find("sh", &host).map(|found| found.needs),
            Some(Vec::new()),
            "what is there anyway is not shown twice"
        );
    }
}
