//! Finds cycles: tasks that wait for each other.

use std::collections::BTreeMap;

/// Every cycle, once, with its first task again at its end.
pub(crate) fn find_cycles<'a>(waits_for: &BTreeMap<&'a str, &'a [String]>) -> Vec<Vec<&'a str>> {
    // Whether all tasks that a task waits for were searched.
    let mut clear: BTreeMap<&str, bool> = BTreeMap::new();
    let mut found = Vec::new();
    for start in waits_for.keys().copied() {
        if clear.contains_key(start) {
            continue;
        }
        // Depth first, with the path to here. Each task is searched once.
        let mut way: Vec<(&'a str, usize)> = vec![(start, 0)];
        clear.insert(start, false);
        while let Some((id, next)) = way.last_mut() {
            let named = waits_for.get(*id).and_then(|names| names.get(*next));
            *next += 1;
            match named.and_then(|name| waits_for.get_key_value(name.as_str())) {
                Some((name, _)) => match clear.get(name) {
                    None => {
                        clear.insert(name, false);
                        way.push((name, 0));
                    }
                    Some(false) => {
                        let from = way.iter().position(|(id, _)| id == name).unwrap_or(0);
                        let circle = way[from..].iter().map(|(id, _)| *id).chain([*name]);
                        found.push(circle.collect());
                    }
                    Some(true) => {}
                },
                None if named.is_some() => {}
                None => {
                    if let Some((id, _)) = way.pop() {
                        clear.insert(id, true);
                    }
                }
            }
        }
    }
    found
}
