//! Whose rights are used when root lands in somebody's repository: theirs.
//!
//! Everything in a repository is its owner's, to change at any moment. Were a folder in there replaced by a
//! link, or a work tree said to be `/etc`, root would write wherever that leads. So root looks and writes with
//! the owner's rights, and the kernel refuses what the owner may not do; what is made is theirs by itself.
//!
//! Only the effective ids of the thread change, for as long as an [`Acting`] lives. The real ones stay root's:
//! the owner can send us no signal, and git is started by root, to be the owner for good
//! ([`agency_sandbox::git::spawn`]).

use std::marker::PhantomData;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{getegid, geteuid, getgroups};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use rustix::{fs::Gid, fs::Uid, io};

use super::error::{Error, files};

/// Somebody else than root, who we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Owner {
    /// The owner of a folder, if that is not who we are and we may act for them.
    pub(super) fn of(folder: &Path) -> Result<Option<Self>, Error> {
        let stat = std::fs::metadata(folder).map_err(files("look at", folder))?;
        let other = geteuid().is_root() && stat.uid() != 0;
        Ok(other.then(|| Self { uid: stat.uid(), gid: stat.gid() }))
    }

    /// Acts for them in this thread. `None` if it does so already.
    pub(super) fn act(self) -> Result<Option<Acting>, Error> {
        if geteuid().as_raw() == self.uid {
            return Ok(None);
        }
        let refused = |error: io::Errno| Error::Owner { uid: self.uid, source: error.into() };
        // When a later step fails, dropping it takes the earlier ones back.
        let acting = Acting {
            uid: geteuid(),
            gid: getegid(),
            groups: getgroups().map_err(refused)?,
            this_thread: PhantomData,
        };
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        set_thread_groups(&[gid]).map_err(refused)?;
        set_thread_res_gid(None::<Gid>, gid, None::<Gid>).map_err(refused)?;
        set_thread_res_uid(None::<Uid>, uid, None::<Uid>).map_err(refused)?;
        Ok(Some(acting))
    }
}

/// This thread has somebody else's rights.
#[derive(Debug)]
#[must_use]
pub(super) struct Acting {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
    this_thread: PhantomData<*const ()>,
}

impl Drop for Acting {
    fn drop(&mut self) {
        // Who is root by the real id may always become so again. If it failed all the same, the thread would
        // have too few rights, and not too many.
        let _ = set_thread_res_uid(None::<Uid>, self.uid, None::<Uid>)
            .and_then(|()| set_thread_res_gid(None::<Gid>, self.gid, None::<Gid>))
            .and_then(|()| set_thread_groups(&self.groups));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    /// Whether a test that takes root can run. That it could not is told at the end of all tests.
    pub(in crate::landing) fn is_root(test: &str) -> bool {
        let told = std::env::var_os("AGENCY_SKIPPED").filter(|_| !geteuid().is_root());
        if let Some(mut told) = told.and_then(|path| fs::OpenOptions::new().append(true).open(path).ok()) {
            writeln!(told, "skipped: {test}: only root can act for somebody else").expect("told");
        }
        geteuid().is_root()
    }

    #[test]
    fn a_thread_that_acts_for_somebody_has_their_rights_and_gets_its_own_back() {
        if !is_root("a_thread_that_acts_for_somebody_has_their_rights_and_gets_its_own_back") {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
        let ids = || (geteuid(), getegid(), getgroups().expect("groups"));
        let before = ids();
        let owner = Owner { uid: 61_950, gid: 61_951 };
        {
            let _acting = owner.act().expect("acts");
            assert!(owner.act().expect("acts").is_none(), "once is enough");
            assert_eq!(ids(), (Uid::from_raw(61_950), Gid::from_raw(61_951), vec![Gid::from_raw(61_951)]));
            assert!(fs::write(folder.path().join("file"), "x").is_err());
            let elsewhere = std::thread::spawn(rustix::process::getuid).join().expect("joins");
            assert!(elsewhere.is_root(), "a thread started meanwhile can still take its own rights back");
        }
        assert_eq!(ids(), before);
        fs::write(folder.path().join("file"), "x").expect("written");
    }
}
