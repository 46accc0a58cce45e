//! Why something the agent did is refused, in words for a person.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::path::{RelPath, escape};

/// One path that keeps the work from landing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    pub path: RelPath,
    #[serde(flatten)]
    pub reason: ViolationReason,
}

/// What is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum ViolationReason {
    /// No write glob matches.
    OutOfScope,
    /// A deny glob matches.
    Denied {
        glob: String,
    },
    /// A file that a later, trusted run obeys, and no glob spells it.
    ControlFile {
        /// What is protected, as the list has it.
        name: String,
        /// Who obeys it.
        reader: String,
        /// What would open it, if it stood in the scope; `None` where an agent wrote the scope.
        #[serde(skip_serializing_if = "Option::is_none")]
        open: Option<String>,
        /// The link by which it is reached.
        #[serde(skip_serializing_if = "Option::is_none")]
        link: Option<RelPath>,
    },
    /// At or below a path the agent was not to see.
    Hidden,
    Device,
    Fifo,
    Socket,
    /// Setuid or setgid.
    SetId,
    /// `security.capability`.
    Capabilities,
    /// A link that does not certainly stay in the workspace, or leads into `.git`.
    LinkLeavesTree {
        #[serde(serialize_with = "escaped")]
        target: Vec<u8>,
    },
    /// `.git`, or a name some file system takes for it, anywhere but at the top.
    NestedGit,
    /// A folder that git takes for a repository, with something in it or below it that changed.
    Repository,
    /// One file is larger than the limit.
    TooLarge {
        size: u64,
        limit: u64,
    },
    /// All changed files together are larger than the limit.
    TooMuch {
        limit: u64,
    },
    /// More changes than the limit; the rest was not looked at.
    TooMany {
        limit: usize,
    },
    /// A path no tool can be handed.
    TooLong {
        limit: usize,
    },
    /// Folders in folders.
    TooDeep {
        limit: usize,
    },
    /// The names of changed files and folders are longer together than the limit; the rest was not looked at.
    TooManyBytes {
        limit: usize,
    },
    /// More links through links than are followed.
    Tangled,
    /// The content, or the target of a link, contains a value that was passed to the agent.
    Secret {
        name: String,
    },
    /// A name below this directory does. The name itself is not repeated here.
    SecretInName {
        name: String,
    },
    /// Redirected or partial copies: the mount was told to make none, so this one is forged.
    Overlay,
    /// It could not be looked at, so nothing can be said about it.
    Unreadable {
        error: String,
    },
}

fn escaped<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&escape(bytes))
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed = match self.reason {
            ViolationReason::OutOfScope => return write!(f, "{} is outside its scope", self.path),
            ViolationReason::Denied { .. } | ViolationReason::ControlFile { .. } => "changed, and ",
            _ => "",
        };
        write!(f, "{}: {changed}{}", self.path, self.reason)
    }
}

impl fmt::Display for ViolationReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfScope => f.write_str("no glob of the scope matches it"),
            Self::Denied { glob } => write!(f, "`{}` forbids it", escape(glob.as_bytes())),
            Self::ControlFile { name, reader, open, link } => {
                match link {
                    None => write!(f, "{reader} obeys `{}`", escape(name.as_bytes()))?,
                    Some(link) => {
                        write!(f, "{reader} obeys `{}`: the link {link} leads to it", escape(name.as_bytes()))?;
                    }
                }
                match open {
                    Some(open) => write!(f, "; it may change only if the scope spells it: `{open}`"),
                    None => f.write_str("; an agent wrote the scope, and only a person's can open it"),
                }
            }
            Self::Hidden => f.write_str("changed, although it is hidden from the agent"),
            Self::Device => f.write_str("is a device"),
            Self::Fifo => f.write_str("is a named pipe"),
            Self::Socket => f.write_str("is a socket"),
            Self::SetId => f.write_str("was given the setuid or setgid bit"),
            Self::Capabilities => f.write_str("was given file capabilities"),
            Self::LinkLeavesTree { target } => write!(
                f,
                "is a link to `{}`, which is outside the workspace, in a `.git`, or can't be shown to be neither",
                escape(target)
            ),
            Self::NestedGit => f.write_str("is, or is taken for, the `.git` of a nested repository"),
            Self::Repository => f.write_str(
                "is a folder that git takes for a repository (HEAD beside objects and refs, or beside commondir), and something in it changed; a person has to do that by hand",
            ),
            Self::TooLarge { size, limit } => {
                write!(f, "has {size} bytes; a changed file may have {limit}")
            }
            Self::TooMuch { limit } => {
                write!(f, "brings the changed files above {limit} bytes together; the rest was not looked at")
            }
            Self::TooMany { limit } => {
                write!(f, "more than {limit} paths were changed or made; the rest was not looked at")
            }
            Self::TooLong { limit } => {
                write!(f, "holds a path longer than {limit} bytes, which no tool can open")
            }
            Self::TooDeep { limit } => {
                write!(f, "lies more than {limit} folders deep, or holds what does; the rest of it was not looked at")
            }
            Self::TooManyBytes { limit } => write!(
                f,
                "the names of the changed files and folders have more than {limit} bytes together; the rest was not looked at"
            ),
            Self::Tangled => f.write_str("has more links that lead through other links than are followed"),
            Self::Secret { name } => write!(f, "contains the value of {}", escape(name.as_bytes())),
            Self::SecretInName { name } => {
                write!(f, "holds a name that contains the value of {}", escape(name.as_bytes()))
            }
            Self::Overlay => f.write_str("claims, by an attribute of overlayfs, that its data is elsewhere"),
            Self::Unreadable { error } => write!(f, "can't be read: {error}"),
        }
    }
}

/// Something a person should know, that refuses nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "warning", rename_all = "snake_case")]
pub enum HarvestWarning {
    /// Two changed paths that are one where case or Unicode form is ignored.
    Collision { one: RelPath, other: RelPath },
    /// The cache of a tool, new and in no repository: it is no part of the work.
    Dropped { path: RelPath },
    /// So many more were noted than are listed.
    More { count: usize },
}

impl fmt::Display for HarvestWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collision { one, other } => {
                write!(f, "{one} and {other} are the same file where case or Unicode form is ignored")
            }
            Self::Dropped { path } => {
                write!(f, "{path} is the cache of a tool, and was left out of the work")
            }
            Self::More { count } => write!(f, "and {count} more"),
        }
    }
}
