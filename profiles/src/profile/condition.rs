//! Conditions: `when` a command applies.
//!
//! One profile fits many repositories because a command may require something first: a script of that name, a file, a
//! declared dependency. Of a map, all conditions must hold; of a list of maps, one; of a list of values, any:
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
pub struct WhenRule(pub Vec<WhenClause>);

/// All of these conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhenClause(pub Vec<WhenCondition>);

/// One condition; of several values, any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhenCondition {
    /// A file or folder; `*` in the last part of its path matches any characters.
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
    Not(WhenRule),
}

impl WhenCondition {
    pub(super) const KEYS: [&'static str; 7] =
        ["file", "script", "requires", "pyproject", "target", "program", "not"];

    /// Its key in a profile.
    pub(super) const fn key(&self) -> &'static str {
        match self {
            WhenCondition::File(_) => "file",
            WhenCondition::Script(_) => "script",
            WhenCondition::Requires(_) => "requires",
            WhenCondition::Pyproject(_) => "pyproject",
            WhenCondition::Target(_) => "target",
            WhenCondition::Program(_) => "program",
            WhenCondition::Not(_) => "not",
        }
    }
}

impl WhenRule {
    pub fn is_always(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it holds. `fact` decides single conditions; it never gets a `Not`.
    pub(crate) fn holds(&self, fact: &mut dyn FnMut(&WhenCondition) -> bool) -> bool {
        self.is_always()
            || self.0.iter().any(|clause| {
                clause.0.iter().all(|condition| match condition {
                    WhenCondition::Not(when) => !when.holds(fact),
                    other => fact(other),
                })
            })
    }
}

/// The condition in words: `a script `lint``.
impl fmt::Display for WhenRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, &self.0, " or ")
    }
}

impl fmt::Display for WhenClause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, &self.0, " and ")
    }
}

impl fmt::Display for WhenCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, values) = match self {
            WhenCondition::File(values) => ("a file ", values),
            WhenCondition::Script(values) => ("a script ", values),
            WhenCondition::Requires(values) => ("a dependency on ", values),
            WhenCondition::Pyproject(values) => ("a table in pyproject.toml ", values),
            WhenCondition::Target(values) => ("a make target ", values),
            WhenCondition::Program(values) => ("a program ", values),
            WhenCondition::Not(when) => return write!(f, "not {when}"),
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

    fn file(name: &str) -> WhenCondition {
        WhenCondition::File(vec![name.into()])
    }

    #[test]
    fn a_clause_holds_as_a_whole_and_one_clause_is_enough() {
        let when = WhenRule(vec![
            WhenClause(vec![file("a"), WhenCondition::Not(WhenRule(vec![WhenClause(vec![file("b")])]))]),
            WhenClause(vec![file("c")]),
        ]);
        let holds = |present: &[&str]| {
            when.holds(&mut |condition| match condition {
                WhenCondition::File(names) => names.iter().any(|name| present.contains(&name.as_str())),
                _ => false,
            })
        };
        assert!(holds(&["a"]) && holds(&["c"]) && holds(&["a", "b", "c"]));
        assert!(!holds(&[]) && !holds(&["a", "b"]) && !holds(&["b"]));
        assert!(WhenRule::default().holds(&mut |_| false));
        assert_eq!(when.to_string(), "a file `a` and not a file `b` or a file `c`");
    }
}
