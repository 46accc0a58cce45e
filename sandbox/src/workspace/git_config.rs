//! A git configuration file, read by ourselves and without believing it.

use std::collections::BTreeMap;

/// The largest configuration that is read. Git's own are a few hundred bytes.
pub(crate) const LARGEST: u64 = 1 << 20;

/// The settings of a configuration file, by their names in lower case. Included files are left out.
pub(crate) fn settings(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut section = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(header) = line.strip_prefix('[') {
            let header = header.split(']').next().unwrap_or_default();
            section = header.replace(['"', ' '], ".").replace("..", ".").trim_matches('.').to_lowercase();
        } else if !line.is_empty() {
            let (key, value) = line.split_once('=').unwrap_or((line, "true"));
            let value = value.trim().trim_matches('"').to_owned();
            found.insert(format!("{section}.{}", key.trim().to_lowercase()), value);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_found_whatever_their_case_and_section() {
        let found = settings(
            "# c\n[extensions]\n\tObjectFormat = sha256\n[remote \"origin\"]\n promisor = true\n[core]\nbare\n",
        );
        assert_eq!(found.get("extensions.objectformat").map(String::as_str), Some("sha256"));
        assert_eq!(found.get("remote.origin.promisor").map(String::as_str), Some("true"));
        assert_eq!(found.get("core.bare").map(String::as_str), Some("true"));
    }
}
