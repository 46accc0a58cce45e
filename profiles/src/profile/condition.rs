//! `when` a command applies.
//!
//! One profile fits many repositories because a command may ask for something first: a script of that name, a
//! file, a declared dependency. A map must hold as a whole, of a list of maps one must hold, and a list of
//! values means any of them:
//!
//! ```yaml
//! when: {script: lint}
//! when: {file: [mypy.ini, .mypy.ini]}
//! when: [{requires: pytest}, {file: conftest.py}]
//! when: {file: "tests/test*.py", not: {requires: pytest}}
//! ```

use std::fmt;

/// One of these clauses must hold. Without any, it always does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct When(pub Vec<Clause>);

/// All of these conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clause(pub Vec<Condition>);

/// One thing that is looked for; of several values, any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// A file or folder; `*` in the last part of its path stands for anything.
    File(Vec<String>),
    /// A script of package.json or composer.json, a task of deno.json.
    Script(Vec<String>),
    /// A dependency the environment's manifest declares.
    Requires(Vec<String>),
    /// A table of pyproject.toml: `tool.pytest`.
    Pyproject(Vec<String>),
    /// A target of the Makefile.
    Target(Vec<String>),
    /// A program on this host's PATH. A profile with an image has none.
    Program(Vec<String>),
    Not(When),
}

impl Condition {
    pub(super) const KEYS: [&'static str; 7] =
        ["file", "script", "requires", "pyproject", "target", "program", "not"];

    /// Its key in a profile.
    pub(super) const fn key(&self) -> &'static str {
        match self {
            Condition::File(_) => "file",
            Condition::Script(_) => "script",
            Condition::Requires(_) => "requires",
            Condition::Pyproject(_) => "pyproject",
            Condition::Target(_) => "target",
            Condition::Program(_) => "program",
            Condition::Not(_) => "not",
        }
    }
}

impl When {
    pub fn is_always(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it holds, given what holds of a single condition. `Not` is never asked about.
    pub(crate) fn holds(&self, fact: &mut dyn FnMut(&Condition) -> bool) -> bool {
        self.is_always()
            || self.0.iter().any(|clause| {
                clause.0.iter().all(|condition| match condition {
                    Condition::Not(when) => !when.holds(fact),
                    other => fact(other),
                })
            })
    }
}

/// What is looked for, in words: `a script `lint``.
impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, &self.0, " or ")
    }
}

impl fmt::Display for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, &self.0, " and ")
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, values) = match self {
            Condition::File(values) => ("a file ", values),
            Condition::Script(values) => ("a script ", values),
            Condition::Requires(values) => ("a dependency on ", values),
            Condition::Pyproject(values) => ("a table in pyproject.toml ", values),
            Condition::Target(values) => ("a make target ", values),
            Condition::Program(values) => ("a program ", values),
            Condition::Not(when) => return write!(f, "not {when}"),
        };
        f.write_str(what)?;
        let quoted: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
        list(f, &quoted, " or ")
    }
}

fn list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: &[T], between: &str) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if index == 0 { "" } else { between })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> Condition {
        Condition::File(vec![name.into()])
    }

    #[test]
    fn a_clause_holds_as_a_whole_and_one_clause_is_enough() {
        let when = When(vec![
            Clause(vec![file("a"), Condition::Not(When(vec![Clause(vec![file("b")])]))]),
            Clause(vec![file("c")]),
        ]);
        let holds = |present: &[&str]| {
            when.holds(&mut |condition| match condition {
                Condition::File(names) => names.iter().any(|name| present.contains(&name.as_str())),
                _ => false,
            })
        };
        assert!(holds(&["a"]) && holds(&["c"]) && holds(&["a", "b", "c"]));
        assert!(!holds(&[]) && !holds(&["a", "b"]) && !holds(&["b"]));
        assert!(When::default().holds(&mut |_| false));
        assert_eq!(when.to_string(), "a file `a` and not a file `b` or a file `c`");
    }
}
