//! What an attack is, and how its result becomes one line.

use std::ffi::{CString, OsStr, OsString};
use std::fmt::Display;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use agency_tests::adversary::{Listed, Outcome, Report};
use nix::errno::Errno;

/// What an attack that worked has to say for itself, or why it did not work.
pub(crate) type Attempt = Result<String, Failure>;

#[derive(Debug)]
pub(crate) enum Failure {
    /// A system call failed. Whether that counts as a denial is decided by [`Attack::is_denial`].
    Call { errno: Errno, step: String },
    /// Every call was allowed, and still the attack did not get what it wanted.
    Held(String),
    /// The attack was asked for in a way that makes no sense.
    Mistake(String),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::Call { errno, step: String::new() }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(code) => Self::from(Errno::from_raw(code)),
            // What `std` makes up itself: a connect timeout is the only one that the attacks can meet.
            None if error.kind() == io::ErrorKind::TimedOut => Self::from(Errno::ETIMEDOUT),
            None => Self::Mistake(error.to_string()),
        }
    }
}

/// Says which step of an attack failed, so that a denial can be told from a denial of something else.
pub(crate) trait Step<T> {
    fn step(self, what: impl Display) -> Result<T, Failure>;
}

impl<T, E: Into<Failure>> Step<T> for Result<T, E> {
    fn step(self, what: impl Display) -> Result<T, Failure> {
        self.map_err(|error| match error.into() {
            Failure::Call { errno, step } if step.is_empty() => {
                Failure::Call { errno, step: what.to_string() }
            }
            Failure::Call { errno, step } => Failure::Call { errno, step: format!("{what}: {step}") },
            other => other,
        })
    }
}

pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) group: &'static str,
    escape: &'static str,
    /// Names of the arguments; one in brackets may be left out.
    arguments: &'static [&'static str],
    not_native: Option<&'static str>,
    root: bool,
    /// Errors that for this attack are a denial, though elsewhere they would be a mistake.
    denials: &'static [Errno],
    run: fn(&Args) -> Attempt,
}

/// An attack that works natively as anybody; the methods take that back.
pub(crate) const fn attack(
    group: &'static str,
    name: &'static str,
    arguments: &'static [&'static str],
    escape: &'static str,
    run: fn(&Args) -> Attempt,
) -> Attack {
    Attack { name, group, escape, arguments, not_native: None, root: false, denials: &[], run }
}

impl Attack {
    /// It cannot, or must not, be tried outside a sandbox on the machine that runs the tests.
    pub(crate) const fn never_natively(mut self, reason: &'static str) -> Self {
        self.not_native = Some(reason);
        self
    }

    /// Without a sandbox it takes root to succeed.
    pub(crate) const fn needs_root(mut self) -> Self {
        self.root = true;
        self
    }

    pub(crate) const fn denied_by(mut self, denials: &'static [Errno]) -> Self {
        self.denials = denials;
        self
    }

    pub(crate) fn listed(&self) -> Listed {
        Listed {
            attack: self.name.to_owned(),
            group: self.group.to_owned(),
            escape: self.escape.to_owned(),
            arguments: self.arguments.iter().map(|&name| name.to_owned()).collect(),
            root: self.root,
            native: self.not_native.is_none(),
            reason: self.not_native.map(str::to_owned),
        }
    }

    pub(crate) fn attempt(&self, values: Vec<OsString>) -> Report {
        let required = self.arguments.iter().filter(|name| !name.starts_with('[')).count();
        let attempt = if (required..=self.arguments.len()).contains(&values.len()) {
            (self.run)(&Args { names: self.arguments, values })
        } else {
            let wanted = self.arguments.join(" ");
            Err(Failure::Mistake(format!("it takes [{wanted}], and got {} arguments", values.len())))
        };
        self.report(attempt)
    }

    pub(crate) fn report(&self, attempt: Attempt) -> Report {
        let (outcome, errno, detail) = match attempt {
            Ok(detail) => (Outcome::Succeeded, None, detail),
            Err(Failure::Held(detail)) => (Outcome::Denied, None, detail),
            Err(Failure::Mistake(detail)) => (Outcome::Error, None, detail),
            Err(Failure::Call { errno, step }) => {
                let outcome = if self.is_denial(errno) { Outcome::Denied } else { Outcome::Error };
                (outcome, Some(errno as i32), format!("{step}: {errno}"))
            }
        };
        Report { attack: self.name.to_owned(), outcome, errno, detail }
    }

    /// The ways in which a kernel says no, or says that what was asked for is not there. Anything else, such
    /// as `EINVAL` or `EFAULT`, more likely means that the attack is wrong, and must not pass for a fence.
    fn is_denial(&self, errno: Errno) -> bool {
        use Errno::*;
        let refused = matches!(errno, EPERM | EACCES | EROFS | EBUSY | EXDEV | ENOSYS | ELOOP);
        let hidden = matches!(errno, ENOENT | ENOTDIR | ESRCH | ENXIO | ENODEV);
        let limited = matches!(errno, ENOSPC | EDQUOT | EFBIG | EAGAIN | ENOMEM | EMFILE | ENFILE);
        let unreachable = matches!(
            errno,
            EAFNOSUPPORT
                | EPROTONOSUPPORT
                | ESOCKTNOSUPPORT
                | EOPNOTSUPP
                | ENETUNREACH
                | ENETDOWN
                | EHOSTUNREACH
                | EADDRNOTAVAIL
                | ECONNREFUSED
                | ECONNRESET
                | ETIMEDOUT
        );
        refused || hidden || limited || unreachable || self.denials.contains(&errno)
    }
}

pub(crate) struct Args {
    names: &'static [&'static str],
    values: Vec<OsString>,
}

impl Args {
    pub(crate) fn path(&self, index: usize) -> &Path {
        Path::new(&self.values[index])
    }

    pub(crate) fn c_path(&self, index: usize) -> Result<CString, Failure> {
        c_string(&self.values[index])
    }

    pub(crate) fn text(&self, index: usize) -> Result<&str, Failure> {
        let name = self.names[index];
        self.values[index].to_str().ok_or_else(|| Failure::Mistake(format!("{name} is not UTF-8")))
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, index: usize) -> Result<T, Failure> {
        let (name, text) = (self.names[index], self.text(index)?);
        text.parse().map_err(|_| Failure::Mistake(format!("{name} is not a number: {text:?}")))
    }

    /// The value of an argument that may be left out.
    pub(crate) fn optional(&self, index: usize) -> Result<Option<&str>, Failure> {
        if index < self.values.len() { self.text(index).map(Some) } else { Ok(None) }
    }
}

pub(crate) fn c_string(text: impl AsRef<OsStr>) -> Result<CString, Failure> {
    CString::new(text.as_ref().as_bytes()).map_err(|_| Failure::Mistake("it contains a NUL byte".to_owned()))
}

/// `path` with `suffix` behind its last component.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
