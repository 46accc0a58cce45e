//! Keys that had another name before. The old name is understood, and a notice says what to write instead.

use toml::{Table, Value};

/// The old name and the present one. `*` stands for a name that people choose.
const RENAMED: &[(&str, &str)] = &[
    ("agents.*.stall", "agents.*.idle_timeout"),
    ("agents.*.outside", "agents.*.external"),
    ("agents.*.version.least", "agents.*.min_version"),
    ("agents.*.usage.adds_up", "agents.*.usage.incremental"),
    ("workspace.setup.keyed_by", "workspace.setup.cache_key"),
];

/// The present path of a key, given by any of its names.
pub(super) fn current(path: &[String]) -> Vec<String> {
    let renamed = RENAMED.iter().find_map(|(old, new)| Some((names(path, old)?, *new)));
    match renamed {
        Some((names, new)) => filled(new, &names),
        None => path.to_vec(),
    }
}

/// What a path has in place of the stars of a pattern, if it fits.
fn names<'a>(path: &'a [String], pattern: &str) -> Option<Vec<&'a str>> {
    let parts: Vec<&str> = pattern.split('.').collect();
    let fits =
        parts.len() == path.len() && path.iter().zip(&parts).all(|(name, part)| *part == "*" || part == name);
    fits.then(|| {
        path.iter().zip(&parts).filter(|(_, part)| **part == "*").map(|(name, _)| name.as_str()).collect()
    })
}

fn filled(pattern: &str, names: &[&str]) -> Vec<String> {
    let mut names = names.iter();
    let name = |part: &str| match part {
        "*" => names.next().copied().unwrap_or_default().to_owned(),
        part => part.to_owned(),
    };
    pattern.split('.').map(name).collect()
}

/// A key that is given by its old name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OldKey {
    pub(super) old: String,
    pub(super) new: String,
}

/// Gives every key its present name. Returns those that had an old one; an error is a key that is given by both.
pub(super) fn apply(values: &mut Table) -> Result<Vec<OldKey>, OldKey> {
    let mut found = Vec::new();
    all_paths(values, &mut Vec::new(), &mut found);
    let mut renamed = Vec::new();
    for path in found {
        let new = current(&path);
        if new == path {
            continue;
        }
        let key = OldKey { old: path.join("."), new: new.join(".") };
        let Some(value) = take(values, &path) else { continue };
        if !put(values, &new, value) {
            return Err(key);
        }
        renamed.push(key);
    }
    Ok(renamed)
}

fn all_paths(values: &Table, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    for (name, value) in values {
        path.push(name.clone());
        match value {
            Value::Table(inner) => all_paths(inner, path, found),
            _ => found.push(path.clone()),
        }
        path.pop();
    }
}

fn take(values: &mut Table, path: &[String]) -> Option<Value> {
    let (last, before) = path.split_last()?;
    let mut table = values;
    for name in before {
        table = table.get_mut(name)?.as_table_mut()?;
    }
    table.remove(last)
}

/// `false` if there is a value already.
fn put(values: &mut Table, path: &[String], value: Value) -> bool {
    let Some((last, before)) = path.split_last() else { return false };
    let mut table = values;
    for name in before {
        let Some(inner) = table.get_mut(name).and_then(Value::as_table_mut) else { return false };
        table = inner;
    }
    if table.contains_key(last) {
        return false;
    }
    table.insert(last.clone(), value);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::configuration::schema;

    #[test]
    fn every_old_key_becomes_a_key_of_the_schema() {
        let mut values: Table =
            "[agents.a]\nstall = \"1m\"\noutside = true\nversion = { least = \"2\", command = [\"a\"] }\n\
                                 usage = { adds_up = true }\n[workspace.setup]\nkeyed_by = [\"lock\"]\n"
                .parse()
                .expect("TOML");
        let renamed = apply(&mut values).expect("each is given once");
        assert_eq!(renamed.len(), RENAMED.len());
        for OldKey { old, new } in &renamed {
            let path = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(current(&path(old)), path(new));
            assert!(schema::find(&path(new)).is_some(), "{new}");
            assert!(schema::find(&path(old)).is_none(), "{old}");
        }
        assert_eq!(values["agents"]["a"]["idle_timeout"].as_str(), Some("1m"));
        assert_eq!(values["agents"]["a"]["min_version"].as_str(), Some("2"));
        assert_eq!(values["workspace"]["setup"]["cache_key"][0].as_str(), Some("lock"));
        assert_eq!(apply(&mut values), Ok(Vec::new()), "nothing is left to rename");
    }

    #[test]
    fn a_key_given_by_both_names_is_an_error() {
        let mut values: Table = "[agents.a]\nstall = \"1m\"\nidle_timeout = \"2m\"\n".parse().expect("TOML");
        let both = OldKey { old: "agents.a.stall".into(), new: "agents.a.idle_timeout".into() };
        assert_eq!(apply(&mut values), Err(both));
    }
}
