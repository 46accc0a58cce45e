//! Objects of the repository, read one after the other from one git.
//!
//! Starting a git costs more than anything it is asked here, so it is started once for everything that a
//! landing wants to know.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use agency_sandbox::git::GitError;
use agency_sandbox::path::RelPath;

use super::error::{Error, git};
use super::names::Oid;
use super::repository::Repository;

const DOING: &str = "read objects";

/// A git that answers for objects.
#[derive(Debug)]
pub(super) struct Objects {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    digits: usize,
}

impl Objects {
    pub(super) fn open(repository: &Repository) -> Result<Self, Error> {
        let mut command = repository.objects.command(["cat-file", "-z", "--batch-command"]);
        // What it has to say, it says in its answers.
        command.stdin(Stdio::piped()).stderr(Stdio::null());
        let start = |source| git(DOING)(GitError::Start { program: repository.program.clone(), source });
        let mut child = command.spawn().map_err(start)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::Answer { doing: DOING });
        };
        let digits = repository.format.digits();
        Ok(Self { child, input: Some(input), output: BufReader::new(output), digits })
    }

    /// The object of a name, and what kind and size it has.
    fn ask(&mut self, what: &str, name: &[u8]) -> Result<Option<(Oid, String, u64)>, Error> {
        let input = self.input.as_mut().ok_or(Error::Answer { doing: DOING })?;
        input.write_all(&[what.as_bytes(), b" ", name, b"\0"].concat())?;
        input.flush()?;
        // `<object> <kind> <size>`, or the name and `missing`; a name is longer than an object's, or has no
        // space where that ends.
        let mut start = vec![0; self.digits + 1];
        self.output.read_exact(&mut start)?;
        if start[self.digits] != b' ' || !start[..self.digits].iter().all(u8::is_ascii_hexdigit) {
            let left = (name.len() + b" missing\n".len()).checked_sub(start.len());
            let mut rest = vec![0; left.ok_or(Error::Answer { doing: DOING })?];
            self.output.read_exact(&mut rest)?;
            return Ok(None);
        }
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.trim_end() == "missing" {
            return Ok(None);
        }
        let (kind, size) = line.trim_end().split_once(' ').ok_or(Error::Answer { doing: DOING })?;
        let size = size.parse().map_err(|_| Error::Answer { doing: DOING })?;
        Ok(Some((Oid::of_line(&start[..self.digits])?, kind.to_owned(), size)))
    }

    /// The bytes of an object of this kind.
    pub(super) fn contents(&mut self, object: &Oid, kind: &str) -> Result<Vec<u8>, Error> {
        let mut contents = Vec::new();
        self.copy(object, kind, &mut contents)?;
        Ok(contents)
    }

    /// Writes them somewhere.
    pub(super) fn copy(&mut self, object: &Oid, kind: &str, out: &mut dyn Write) -> Result<(), Error> {
        let missing = || Error::Missing { kind: kind.to_owned(), object: object.to_string() };
        let (_, found, size) = self.ask("contents", object.as_str().as_bytes())?.ok_or_else(missing)?;
        let copied = io::copy(&mut (&mut self.output).take(size), out)?;
        let mut end = [0];
        self.output.read_exact(&mut end)?;
        match found == kind && copied == size {
            true => Ok(()),
            false => Err(missing()),
        }
    }

    pub(super) fn tree_of(&mut self, commit: &Oid) -> Result<Oid, Error> {
        let name = format!("{commit}^{{tree}}");
        let missing = || Error::Missing { kind: "tree".to_owned(), object: commit.to_string() };
        Ok(self.ask("info", name.as_bytes())?.ok_or_else(missing)?.0)
    }

    /// The commits a commit was made on.
    pub(super) fn parents(&mut self, commit: &Oid) -> Result<Vec<Oid>, Error> {
        let text = self.contents(commit, "commit")?;
        let header = text.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty());
        header.filter_map(|line| line.strip_prefix(b"parent ")).map(Oid::of_line).collect()
    }

    /// A file of a tree. Whether it can be executed, or is a link, is not said.
    pub(super) fn file(&mut self, tree: &Oid, path: &RelPath) -> Result<Option<Oid>, Error> {
        let name = [tree.as_str().as_bytes(), b":", path.as_bytes()].concat();
        let found = self.ask("info", &name)?;
        Ok(found.filter(|(_, kind, _)| kind == "blob").map(|(object, ..)| object))
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
