//! Names of objects, references and tasks, as types that can't hold a wrong name.

use std::fmt;

use serde::{Serialize, Serializer};

use super::error::Error;

/// The hash by which a repository names its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OidFormat {
    Sha1,
    Sha256,
}

impl OidFormat {
    pub(super) fn digits(self) -> usize {
        match self {
            Self::Sha1 => 40,
            Self::Sha256 => 64,
        }
    }

    /// The format of a repository that has this object.
    pub fn of(oid: &Oid) -> Self {
        match oid.0.len() == Self::Sha256.digits() {
            true => Self::Sha256,
            false => Self::Sha1,
        }
    }

    /// The tree without entries, which every git knows.
    pub(super) fn empty_tree(self) -> Oid {
        Oid(match self {
            Self::Sha1 => "4b825dc642cb6eb9a060e54bf8d69288fbee4904".to_owned(),
            Self::Sha256 => "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321".to_owned(),
        })
    }

    /// The id that git writes where there is no object.
    pub(super) fn null_id(self) -> String {
        "0".repeat(self.digits())
    }
}

/// The full name of an object, in lower-case hexadecimal. The null id is not one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid(String);

impl Oid {
    pub fn parse(text: &str) -> Result<Self, Error> {
        let digits = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let known = [OidFormat::Sha1, OidFormat::Sha256].iter().any(|format| format.digits() == text.len());
        if !known || !digits || text.bytes().all(|byte| byte == b'0') {
            return Err(Error::Name { what: "an object", name: text.to_owned() });
        }
        Ok(Self(text.to_owned()))
    }

    /// One line of git's output.
    pub(super) fn of_line(line: &[u8]) -> Result<Self, Error> {
        Self::parse(String::from_utf8_lossy(line).trim_end())
    }

    /// As a tree has it.
    pub(super) fn of_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Self::parse(&bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let digit = |digit: u8| if digit.is_ascii_digit() { digit - b'0' } else { digit - b'a' + 10 };
        self.0.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Oid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// What the names of our own references begin with.
pub(super) const OURS: &str = "refs/agency/";

/// The full name of a reference, such as `refs/heads/main`: one line, one path below `refs`, and nothing git
/// would refuse (`git-check-ref-format(1)`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RefName(String);

impl RefName {
    pub fn parse(name: &str) -> Result<Self, Error> {
        let odd = |byte: u8| byte <= b' ' || byte == 0x7f || b"~^:?*[\\".contains(&byte);
        let wrong = !name.starts_with("refs/")
            || name.bytes().any(odd)
            || name.contains("..")
            || name.contains("@{")
            || name.ends_with('.')
            || name
                .split('/')
                .any(|part| part.is_empty() || part.starts_with('.') || part.ends_with(".lock"));
        match wrong {
            true => Err(Error::Name { what: "a reference", name: name.to_owned() }),
            false => Ok(Self(name.to_owned())),
        }
    }

    /// `main` is `refs/heads/main`.
    pub fn branch(name: &str) -> Result<Self, Error> {
        Self::parse(&format!("refs/heads/{name}"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The names that can't exist beside this one, because their file is where this one needs a folder: `refs/heads/a`
    /// for `refs/heads/a/b`.
    pub(super) fn parent_names(&self) -> impl Iterator<Item = Self> {
        let slashes = self.0.match_indices('/').map(|(at, _)| at);
        slashes.filter(|at| self.0[..*at].matches('/').count() >= 2).map(|at| Self(self.0[..at].to_owned()))
    }
}

/// Shown to people without `refs/heads/`.
impl fmt::Display for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.strip_prefix("refs/heads/").unwrap_or(&self.0))
    }
}

impl Serialize for RefName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// A task: the protocol that it is written in, and its id there. Both are components of references.
///
/// Ids come from files that people write, so any text is taken, and each gives another name: letters, digits,
/// `-` and `_` stand for themselves, every other byte is written as `%2E`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskName {
    protocol: String,
    id: String,
    component: String,
    /// The name of its own branch, where the protocol gives one.
    named: Option<RefName>,
}

/// Components that mean something else below `refs/agency`.
const TAKEN: [&str; 4] = ["lease", "landed", "upstream", "pin"];
/// A component of a path has 255 bytes at most, and git appends `.lock`.
const LONGEST: usize = 200;

impl TaskName {
    pub fn new(protocol: &str, id: &str) -> Result<Self, Error> {
        let plain = protocol.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'-'));
        if !plain || TAKEN.contains(&protocol) || !(1..=LONGEST).contains(&protocol.len()) {
            return Err(Error::Name { what: "a protocol", name: protocol.to_owned() });
        }
        let mut component = String::with_capacity(id.len());
        for byte in id.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => component.push(char::from(byte)),
                _ => component.push_str(&format!("%{byte:02X}")),
            }
        }
        if !(1..=LONGEST).contains(&component.len()) {
            return Err(Error::Name { what: "a task that can be landed", name: id.to_owned() });
        }
        Ok(Self { protocol: protocol.to_owned(), id: id.to_owned(), component, named: None })
    }

    /// The task that has this component in its references.
    fn of_component(protocol: &str, component: &str) -> Option<Self> {
        let (mut id, mut rest) = (Vec::new(), component.as_bytes());
        while let [byte, more @ ..] = rest {
            rest = more;
            id.push(match byte {
                b'%' => {
                    let digits = std::str::from_utf8(more.get(..2)?).ok()?;
                    rest = &more[2..];
                    u8::from_str_radix(digits, 16).ok()?
                }
                byte => *byte,
            });
        }
        let task = Self::new(protocol, &String::from_utf8(id).ok()?).ok()?;
        // We write each id in one way only.
        (task.component == component).then_some(task)
    }

    /// The name of the protocol.
    pub fn protocol(&self) -> &str {
        &self.protocol
    }

    /// Sets the name of its own branch. A name that git would refuse is ignored.
    pub fn with_branch(mut self, name: Option<&str>) -> Self {
        self.named = name.and_then(|name| RefName::branch(name).ok());
        self
    }

    /// The id, as the protocol writes it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The reference of its lease: `refs/agency/lease/<protocol>/<id>`.
    pub fn lease(&self) -> RefName {
        RefName(format!("refs/agency/lease/{}/{}", self.protocol, self.component))
    }

    /// The reference of its landing record: `refs/agency/landed/<protocol>/<id>`.
    pub fn landed(&self) -> RefName {
        RefName(format!("refs/agency/landed/{}/{}", self.protocol, self.component))
    }

    /// The reference that pins the commit its attempt works on: `refs/agency/pin/<protocol>/<id>`.
    pub fn pin(&self) -> RefName {
        RefName(format!("refs/agency/pin/{}/{}", self.protocol, self.component))
    }

    /// The reference of an attempt's candidate: `refs/agency/<protocol>/<id>/<epoch>`.
    pub fn candidate(&self, epoch: u64) -> RefName {
        RefName(format!("refs/agency/{}/{}/{epoch}", self.protocol, self.component))
    }

    /// The task's own branch: `agency/<id>`, for work that lands on no branch of a person. People type it, so it is
    /// short. Two protocols with the same id share it, and the second finds it taken. A protocol may give another name.
    pub fn branch(&self) -> RefName {
        self.named.clone().unwrap_or_else(|| RefName(format!("refs/heads/agency/{}", self.component)))
    }
}

/// More attempts or owners than a store can ever count.
pub const HIGHEST: u64 = 1 << 48;

/// What a reference of ours records about a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskRefKind {
    Lease,
    Landed,
    Pin,
    Candidate(u64),
}

impl TaskRefKind {
    /// Reads the name of a reference; `None` if it is not one that a [`TaskName`] gives.
    pub(super) fn read(name: &RefName) -> Option<(TaskName, Self)> {
        let (first, rest) = name.as_str().strip_prefix(OURS)?.split_once('/')?;
        let (second, third) = rest.split_once('/')?;
        let (task, says) = match first {
            "lease" => (TaskName::of_component(second, third)?, Self::Lease),
            "landed" => (TaskName::of_component(second, third)?, Self::Landed),
            "pin" => (TaskName::of_component(second, third)?, Self::Pin),
            protocol => (
                TaskName::of_component(protocol, second)?,
                Self::Candidate(third.parse().ok().filter(|epoch| *epoch <= HIGHEST)?),
            ),
        };
        let own = match says {
            Self::Lease => task.lease(),
            Self::Landed => task.landed(),
            Self::Pin => task.pin(),
            Self::Candidate(epoch) => task.candidate(epoch),
        };
        (own == *name).then_some((task, says))
    }
}

/// `kodingx:T0001`
impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.protocol, agency_sandbox::path::escape(self.id.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_name_of_an_object_is_refused() {
        for text in ["", "abc", &"0".repeat(40), &"A".repeat(40), &"a".repeat(41), "refs/heads/main"] {
            assert!(Oid::parse(text).is_err(), "{text:?}");
        }
        assert!(Oid::parse(&"a".repeat(40)).is_ok() && Oid::parse(&"1".repeat(64)).is_ok());
    }

    #[test]
    fn what_git_would_refuse_as_a_reference_is_refused_before() {
        for name in [
            "main",
            "refs/heads/",
            "refs/heads/a b",
            "refs/heads/a..b",
            "refs/heads/.a",
            "refs/heads/a.lock",
            "refs/heads/a/",
            "refs/heads/a\nb",
            "refs/heads/a@{1}",
            "refs/heads/a.",
            "refs/heads/a:b",
            "refs//a",
        ] {
            assert!(RefName::parse(name).is_err(), "{name:?}");
        }
        assert!(RefName::branch("feature/ü-1.2").is_ok());
    }

    #[test]
    fn a_name_knows_which_names_would_be_in_its_way() {
        let above: Vec<String> = RefName::branch("agency/a/b")
            .expect("a name")
            .parent_names()
            .map(|name| name.to_string())
            .collect();
        assert_eq!(above, ["agency", "agency/a"]);
        assert_eq!(RefName::branch("main").expect("a name").parent_names().count(), 0);
    }

    #[test]
    fn a_task_is_known_by_its_protocol_and_its_id() {
        let task = TaskName::new("kodingx", "T.1").expect("a task");
        assert_eq!(task.lease().as_str(), "refs/agency/lease/kodingx/T%2E1");
        assert_eq!(task.landed().as_str(), "refs/agency/landed/kodingx/T%2E1");
        assert_eq!(task.candidate(2).as_str(), "refs/agency/kodingx/T%2E1/2");
        assert_eq!(task.branch().as_str(), "refs/heads/agency/T%2E1");
        assert_eq!(task.to_string(), "kodingx:T.1");
        assert_ne!(task.lease(), TaskName::new("todo", "T.1").expect("a task").lease());
        assert!(TaskName::new("kodingx", "").is_err() && TaskName::new("kodingx", &"x".repeat(300)).is_err());
    }

    #[test]
    fn a_protocol_can_not_have_the_name_of_a_folder_of_ours_or_be_a_path() {
        for protocol in ["", "lease", "landed", "pin", "Kodingx", "a/b", "..", "a b", "a:b", &"x".repeat(300)]
        {
            let refused = TaskName::new(protocol, "T1").expect_err("refused").to_string();
            assert!(refused.ends_with("is not the name of a protocol"), "{refused}");
        }
    }

    #[test]
    fn a_name_that_no_task_gives_says_nothing() {
        for name in [
            "refs/agency/kodingx/T1/07",
            "refs/agency/kodingx/T1/x",
            "refs/agency/kodingx/T%2e1/1",
            "refs/agency/kodingx/T%41/1",
            "refs/agency/kodingx/T%/1",
            "refs/agency/kodingx/%FF/1",
            "refs/agency/Kodingx/T1/1",
            "refs/agency/upstream/main/1",
            "refs/agency/lease/kodingx",
            "refs/agency/lease/kodingx/T1/1",
            "refs/heads/agency/T1",
        ] {
            assert_eq!(TaskRefKind::read(&RefName::parse(name).expect("a name")), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn every_id_gives_a_reference_of_its_own(one in "\\PC{1,20}", other in "\\PC{1,20}") {
            let task = |id: &str| TaskName::new("kodingx", id).expect("a task");
            let (first, second) = (task(&one), task(&other));
            prop_assert_eq!(first.lease() == second.lease(), one == other);
            for name in [first.lease(), first.landed(), first.candidate(7), first.branch()] {
                prop_assert!(RefName::parse(name.as_str()).is_ok(), "{:?}", name);
            }
            prop_assert_eq!(TaskRefKind::read(&first.lease()), Some((first.clone(), TaskRefKind::Lease)));
            prop_assert_eq!(TaskRefKind::read(&first.landed()), Some((first.clone(), TaskRefKind::Landed)));
            prop_assert_eq!(TaskRefKind::read(&first.candidate(7)), Some((first.clone(), TaskRefKind::Candidate(7))));
            prop_assert_eq!(TaskRefKind::read(&first.branch()), None);
        }
    }
}
