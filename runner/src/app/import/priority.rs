//! How urgent an issue is, from the words people use for it.
//!
//! Tasks know four priorities (KodingX §6.2: P0 to P3); trackers have any number under any name. Words that are not
//! known say nothing, and the task gets the usual priority.

/// From the name of a tracker's own priority field, such as `Highest` or `P1 - High`.
pub(super) fn of_name(name: &str) -> Option<u8> {
    let words = words(name);
    words.iter().find_map(|word| rank(word)).or_else(|| words.iter().find_map(|word| urgency(word)))
}

/// The most urgent that any label says: `P1`, `priority:high`, `prio/low`, `high-priority`.
pub(super) fn of_labels(labels: &[String]) -> Option<u8> {
    labels.iter().filter_map(|label| of_label(label)).min()
}

fn of_label(label: &str) -> Option<u8> {
    let words = words(label);
    match words.as_slice() {
        [word] => rank(word),
        // `critical` alone may be a severity, or the name of a component.
        words if words.iter().any(|word| word == "priority" || word == "prio") => of_name(label),
        _ => None,
    }
}

fn words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

fn rank(word: &str) -> Option<u8> {
    match word {
        "p0" => Some(0),
        "p1" => Some(1),
        "p2" => Some(2),
        "p3" => Some(3),
        _ => None,
    }
}

/// Jira's two schemes (Highest to Lowest; Blocker to Trivial) and what labels usually say. Five names share four
/// places, so the ends that are hardest to tell apart share one.
fn urgency(word: &str) -> Option<u8> {
    match word {
        "highest" | "blocker" | "critical" | "urgent" => Some(0),
        "high" | "major" => Some(1),
        "medium" | "normal" | "minor" => Some(2),
        "low" | "lowest" | "trivial" => Some(3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_priority_are_four() {
        for (name, expected) in [
            ("Highest", Some(0)),
            ("Blocker", Some(0)),
            ("High", Some(1)),
            ("P1 - Critical", Some(1)),
            ("Medium", Some(2)),
            ("Low", Some(3)),
            ("Lowest", Some(3)),
            ("2 - High", Some(1)),
            ("Someday", None),
            ("P9", None),
            ("", None),
        ] {
            assert_eq!(of_name(name), expected, "{name}");
        }
    }

    #[test]
    fn labels_say_a_priority_only_where_they_say_so() {
        for (label, expected) in [
            ("P0", Some(0)),
            ("p3", Some(3)),
            ("priority:high", Some(1)),
            ("Priority: P2", Some(2)),
            ("prio/low", Some(3)),
            ("high-priority", Some(1)),
            ("priority/critical-urgent", Some(0)),
            ("critical", None),
            ("minor-release", None),
            ("priority", None),
            ("p1-customers", None),
        ] {
            assert_eq!(of_label(label), expected, "{label}");
        }
        assert_eq!(of_labels(&["bug".into(), "P2".into(), "priority:high".into()]), Some(1));
        assert_eq!(of_labels(&["bug".into()]), None);
    }
}
