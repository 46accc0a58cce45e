//! The commit of a work tree, read from the repository's files.
//!
//! Git is not asked: it would read the repository's configuration first, and obey it.

use std::path::Path;

use agency_sandbox::path::RelPath;
use agency_sandbox::untrusted;
use agency_sandbox::workspace::folder::RepositoryPaths;

/// How many symbolic references are followed; more is a cycle.
const LINKS: usize = 5;
/// Enough for a reference, and for a file of packed ones.
const SHORT: u64 = 4096;
const PACKED: u64 = 64 << 20;

/// The hash by which objects are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashAlgorithm {
    Sha1,
    Sha256,
}

/// What a work tree's HEAD names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitHead {
    pub format: HashAlgorithm,
    /// None before the first commit.
    pub commit: Option<String>,
}

impl HashAlgorithm {
    fn is_name(self, text: &str) -> bool {
        let length = match self {
            HashAlgorithm::Sha1 => 40,
            HashAlgorithm::Sha256 => 64,
        };
        text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    }
}

impl GitHead {
    pub fn read(repository: &RepositoryPaths) -> Self {
        let config = read(&repository.common.join("config"), SHORT * 256).unwrap_or_default();
        let sha256 = config.lines().any(|line| {
            let line = line.trim().to_ascii_lowercase();
            line.split_once('=').is_some_and(|(key, value)| {
                key.trim() == "objectformat" && value.trim().trim_matches('"') == "sha256"
            })
        });
        let format = if sha256 { HashAlgorithm::Sha256 } else { HashAlgorithm::Sha1 };
        Self { format, commit: commit(repository, format) }
    }
}

fn commit(repository: &RepositoryPaths, format: HashAlgorithm) -> Option<String> {
    let mut text = read(&repository.git.join("HEAD"), SHORT)?;
    for _ in 0..LINKS {
        let Some(name) = text.trim().strip_prefix("ref:") else { break };
        text = reference(repository, name.trim())?;
    }
    format.is_name(text.trim()).then(|| text.trim().to_ascii_lowercase())
}

fn reference(repository: &RepositoryPaths, name: &str) -> Option<String> {
    // A name that leads out of the repository is not a reference's.
    let path = RelPath::parse(name.as_bytes()).ok().filter(|_| name.starts_with("refs/"))?;
    // Some references are a work tree's own; the others are shared.
    let loose = [&repository.git, &repository.common].map(|folder| read(&folder.join(path.as_path()), SHORT));
    loose.into_iter().flatten().next().or_else(|| {
        let packed = read(&repository.common.join("packed-refs"), PACKED)?;
        packed.lines().find_map(|line| {
            line.split_once(' ').filter(|(_, known)| *known == name).map(|(id, _)| id.to_owned())
        })
    })
}

fn read(path: &Path, most: u64) -> Option<String> {
    let (folder, name) = (path.parent()?, path.file_name()?);
    untrusted::read_text(folder, name, most).ok().flatten()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef01234567";

    fn head(files: &[(&str, &str)]) -> GitHead {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
            fs::write(path, text).expect("a file");
        }
        GitHead::read(&RepositoryPaths { git: folder.path().to_owned(), common: folder.path().to_owned() })
    }

    #[test]
    fn a_branch_is_followed_loose_packed_and_over_links() {
        let branch = ("HEAD", "ref: refs/heads/main\n");
        let packed = format!("# pack-refs\n{ID} refs/heads/main\n");
        for files in [
            &[("HEAD", ID)][..],
            &[branch, ("refs/heads/main", &format!("{ID}\n"))],
            &[branch, ("packed-refs", &packed)],
            &[
                ("HEAD", "ref: refs/heads/other"),
                ("refs/heads/other", "ref: refs/heads/main"),
                ("packed-refs", &packed),
            ],
        ] {
            assert_eq!(
                head(files),
                GitHead { format: HashAlgorithm::Sha1, commit: Some(ID.into()) },
                "{files:?}"
            );
        }
    }

    #[test]
    fn what_is_no_commit_is_none() {
        for files in [
            &[("HEAD", "ref: refs/heads/unborn")][..],
            &[("HEAD", "ref: ../secret"), ("secret", ID)],
            &[("HEAD", "ref: refs/heads/a"), ("refs/heads/a", "ref: refs/heads/a")],
            &[("HEAD", "abc")],
            &[],
        ] {
            assert_eq!(head(files).commit, None, "{files:?}");
        }
        let other = head(&[("HEAD", ID), ("config", "[extensions]\n\tobjectFormat = sha256\n")]);
        assert_eq!(other, GitHead { format: HashAlgorithm::Sha256, commit: None });
    }
}
