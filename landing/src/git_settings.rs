//! The settings of a person's git that decide what their files look like.
//!
//! Our own git obeys no configuration but ours. A person's checkout follows theirs: lines may end in CRLF there, links
//! may be plain files, some paths may be left out. We read these settings, one by one and by name, and repeat them in a
//! configuration of our own. None of them can name a program to run; of those that can (filters, hooks, monitors) we
//! only note that they are there.
//!
//! `git config --list` is the only command that runs with the repository's configuration. It prints the configuration
//! and does nothing else, and it is stopped if it does not end ([`agency_sandbox::git_config_query`]). We keep the
//! output for as long as the files that git read are the same.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use agency_sandbox::git_config_query;

use super::error::Error;
use super::file_stamp::FileStamp;
use super::names::OidFormat;
use agency_sandbox::error_chain;

/// Which git is asked, and where the person's home is.
#[derive(Debug, Clone, Copy)]
pub(super) struct GitSettingsReader<'a> {
    pub(super) program: &'a Path,
    pub(super) home: Option<&'a Path>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct GitSettings {
    entries: Vec<GitSetting>,
    /// The person's own file of attributes. One that the repository names is not read: it could be a pipe.
    attributes: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct GitSetting {
    /// From the person or the machine, and not from the repository.
    own: bool,
    /// Section and name in lower case, as git prints it.
    key: String,
    value: String,
}

/// The settings that are repeated when their value is one word.
const REPEATED: [&str; 7] = [
    "core.autocrlf",
    "core.eol",
    "core.filemode",
    "core.ignorecase",
    "core.sharedrepository",
    "core.sparsecheckout",
    "core.symlinks",
];

impl GitSettingsReader<'_> {
    /// The settings in the work tree with git directory `git`, of the repository `common`.
    pub(super) fn read(&self, git: &Path, common: &Path) -> Result<GitSettings, Error> {
        let unreadable = |reason: String| Error::Unsupported { path: git.to_owned(), reason };
        let mut command = Command::new(self.program);
        command.env_clear().current_dir("/").stdin(Stdio::null());
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.env("HOME", self.home.unwrap_or(Path::new("/nonexistent")));
        command.env("LC_ALL", "C").env("GIT_DIR", git);
        command.args(["config", "--list", "-z", "--show-scope", "--includes"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let sources = self.sources(git, common);
        let asked = git_config_query::query(&mut command, &sources, self.home);
        let output = asked.map_err(|error| {
            unreadable(format!("its configuration can't be read: {}", error_chain::on_one_line(&error)))
        })?;
        if !output.status.success() {
            let message = agency_sandbox::path::escape(output.stderr.trim_ascii());
            return Err(unreadable(format!("its configuration can't be read: {message}")));
        }
        let mut settings = GitSettings::parse(&output.stdout);
        let usual = self.home.map(|home| home.join(".config/git/attributes")).filter(|path| path.is_file());
        let usual = usual.and_then(|path| path.into_os_string().into_string().ok());
        let expanded = settings.attributes.map(|path| match (path.strip_prefix("~/"), self.home) {
            (Some(rest), Some(home)) => format!("{}/{rest}", home.display()),
            _ => path,
        });
        settings.attributes = expanded.or(usual);
        Ok(settings)
    }

    /// Every file that decides about the settings, unless one of them includes another.
    fn sources(&self, git: &Path, common: &Path) -> Vec<PathBuf> {
        let installed = self.program.parent().unwrap_or(Path::new("/"));
        let mut sources = vec![installed.join("../etc/gitconfig"), "/etc/gitconfig".into()];
        for name in [".gitconfig", ".config/git/config", ".config/git/attributes"] {
            sources.extend(self.home.map(|home| home.join(name)));
        }
        sources.extend([common.join("config"), common.join("config.worktree"), git.join("config.worktree")]);
        sources
    }
}

/// The settings last read in each work tree, with the stamps of their files at that time.
#[derive(Debug, Default)]
pub(super) struct GitSettingsCache(Mutex<HashMap<PathBuf, (SourceStamps, GitSettings)>>);

/// The stamp of each file that may decide; `None` for one that is missing.
type SourceStamps = Vec<Option<FileStamp>>;

impl GitSettingsCache {
    pub(super) fn read(
        &self,
        reader: &GitSettingsReader<'_>,
        git: &Path,
        common: &Path,
    ) -> Result<GitSettings, Error> {
        let sources = reader.sources(git, common);
        // Git can't read a file either that we may not read.
        let stamps =
            || sources.iter().map(|path| FileStamp::of(path).ok().flatten()).collect::<SourceStamps>();
        let before = stamps();
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, settings)) = known().get(git).filter(|(then, _)| *then == before) {
            return Ok(settings.clone());
        }
        let settings = reader.read(git, common)?;
        if !settings.includes() && stamps() == before {
            known().insert(git.to_owned(), (before, settings.clone()));
        }
        Ok(settings)
    }
}

impl GitSettings {
    /// `scope NUL key LF value NUL …`; a key without a value means yes.
    fn parse(listed: &[u8]) -> Self {
        let mut parts = listed.split(|byte| *byte == 0);
        let mut entries = Vec::new();
        while let (Some(scope), Some(entry)) = (parts.next(), parts.next()) {
            let text = String::from_utf8_lossy(entry);
            let (key, value) = text.split_once('\n').unwrap_or((&text, "true"));
            let own = matches!(scope, b"system" | b"global");
            entries.push(GitSetting { own, key: key.to_owned(), value: value.to_owned() });
        }
        let mut own = entries.iter().rev().filter(|entry: &&GitSetting| entry.own);
        let attributes =
            own.find(|entry| entry.key == "core.attributesfile").map(|entry| entry.value.clone());
        Self { entries, attributes }
    }

    /// Whether the settings include other files.
    fn includes(&self) -> bool {
        let include = |key: &str| key.starts_with("include.") || key.starts_with("includeif.");
        self.entries.iter().any(|entry| include(&entry.key))
    }

    /// The value of a setting. Of several the last one counts.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.entries.iter().rev().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
    }

    pub(super) fn is_on(&self, key: &str) -> bool {
        self.text(key).is_some_and(|value| {
            matches!(value.to_ascii_lowercase().as_str(), "true" | "yes" | "on" | "1" | "always")
        })
    }

    pub(super) fn is_off(&self, key: &str) -> bool {
        self.text(key).is_some() && !self.is_on(key)
    }

    /// The filters that would run in this person's git.
    pub(super) fn filters(&self) -> BTreeSet<&str> {
        let named = self.entries.iter().filter_map(|entry| {
            let (name, part) = entry.key.strip_prefix("filter.")?.rsplit_once('.')?;
            (matches!(part, "clean" | "smudge" | "process") && !entry.value.is_empty()).then_some(name)
        });
        named.collect()
    }

    pub(super) fn format(&self) -> Result<OidFormat, String> {
        match self.text("extensions.objectformat") {
            None | Some("sha1") => Ok(OidFormat::Sha1),
            Some("sha256") => Ok(OidFormat::Sha256),
            Some(other) => Err(format!("its object format `{other}` is not known")),
        }
    }

    /// A configuration of our own that makes git treat files as the person's does.
    pub(super) fn repeated(&self, format: OidFormat) -> String {
        let mut config = own(format, false);
        for key in REPEATED {
            let word = self.text(key).filter(|value| value.bytes().all(|byte| byte.is_ascii_alphanumeric()));
            if let (Some(value), Some((_, name))) = (word, key.split_once('.')) {
                config.push_str(&format!("\t{name} = {value}\n"));
            }
        }
        if self.is_on("core.sparsecheckoutcone") {
            config.push_str("\tsparseCheckoutCone = true\n");
        }
        if let Some(path) = &self.attributes {
            let quoted = path.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            config.push_str(&format!("\tattributesFile = \"{quoted}\"\n"));
        }
        config
    }

    /// Whether a file has the bytes of its blob wherever no attribute applies.
    pub(super) fn are_files_raw(&self) -> bool {
        let converts = self.text("core.autocrlf").is_some_and(|value| value != "false");
        !converts && !self.is_off("core.symlinks") && self.attributes.is_none()
    }
}

/// The configuration of a repository of our own; more settings of `core` may follow it.
pub(super) fn own(format: OidFormat, bare: bool) -> String {
    let mut config = String::new();
    let version = match format {
        OidFormat::Sha1 => 0,
        OidFormat::Sha256 => {
            config.push_str("[extensions]\n\tobjectFormat = sha256\n");
            1
        }
    };
    config.push_str(&format!("[core]\n\trepositoryFormatVersion = {version}\n\tbare = {bare}\n"));
    // Loose objects, too, are on the disk before a reference names them.
    config.push_str("\tfsync = committed\n\tfilesRefLockTimeout = 200\n");
    // A commit graph is a file that another program computed, and may differ from the commits.
    config.push_str(
        "\tcommitGraph = false\n\tmultiPackIndex = false\n\thooksPath = /dev/null\n\tfsmonitor = false\n",
    );
    config.push_str("\tsplitIndex = false\n\tprotectHFS = true\n\tprotectNTFS = true\n");
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &[u8] = b"system\0core.eol\nlf\0global\0core.attributesfile\n/home/\"a\\b\0local\0core.eol\ncrlf\0\
        local\0core.attributesfile\n/dev/fifo\0local\0core.filemode\0local\0core.symlinks\n$(touch x)\0\
        global\0filter.lfs.process\ngit-lfs filter-process\0local\0filter.a.b.clean\ncat\0local\0filter.off.clean\n\0\
        local\0core.fsmonitor\n/tmp/evil\0local\0core.hookspath\n/tmp/evil\0";

    #[test]
    fn the_last_value_counts_and_a_key_alone_means_yes() {
        let settings = GitSettings::parse(LISTED);
        assert_eq!(settings.text("core.eol"), Some("crlf"));
        assert!(settings.is_on("core.filemode") && !settings.is_off("core.filemode"));
        assert!(!settings.is_on("core.bare") && !settings.is_off("core.bare"));
    }

    #[test]
    fn filters_that_would_run_are_known_by_name() {
        assert_eq!(GitSettings::parse(LISTED).filters().into_iter().collect::<Vec<_>>(), ["a.b", "lfs"]);
    }

    #[test]
    fn nothing_that_names_a_program_is_repeated_and_no_file_that_the_repository_names() {
        let config = GitSettings::parse(LISTED).repeated(OidFormat::Sha256);
        assert!(config.contains("\teol = crlf\n") && config.contains("objectFormat = sha256"));
        assert!(config.contains("\tattributesFile = \"/home/\\\"a\\\\b\"\n"));
        for never in ["evil", "fifo", "touch", "lfs"] {
            assert!(!config.contains(never), "{config}");
        }
    }

    /// A repository as git makes it, whose configuration ends like this.
    fn configured(folder: &Path, more: &str) {
        let made = Command::new("git").args(["init", "--quiet", "--bare"]).arg(folder).status();
        assert!(made.expect("git").success());
        let config = std::fs::read_to_string(folder.join("config")).expect("a configuration");
        std::fs::write(folder.join("config"), config + more).expect("written");
    }

    fn make_pipe(path: &Path) {
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o644));
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).expect("a pipe");
    }

    /// What is said about a configuration in which git waits for ever.
    fn said(read: Result<GitSettings, Error>) -> String {
        read.expect_err("git waits").to_string()
    }

    #[test]
    fn a_pipe_is_found_from_a_linked_work_tree_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let (common, git) = (folder.path().join("git"), folder.path().join("git/worktrees/x"));
        configured(&common, "[include]\n\tpath = pipe\n");
        make_pipe(&common.join("pipe"));
        std::fs::create_dir_all(&git).expect("made");
        for (name, text) in [("HEAD", "ref: refs/heads/x\n"), ("commondir", "../..\n")] {
            std::fs::write(git.join(name), text).expect("written");
        }
        let reader = GitSettingsReader { program: Path::new("git"), home: None };
        let said = said(GitSettingsCache::default().read(&reader, &git, &common));
        assert!(said.contains(&format!("{}, which is a pipe", common.join("pipe").display())), "{said}");
    }
}
