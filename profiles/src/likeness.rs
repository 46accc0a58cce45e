//! Which known name a text was probably meant to be. A guess that is far off is worse than none.

/// The known name that is nearest to a text, if it is close.
pub fn nearest<'k>(text: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let close = known.into_iter().filter_map(|name| Some((name, likeness(text, name)?)));
    close.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(name, _)| name)
}

/// How much two names are alike, if they are close: one typing mistake apart, or with a likeness of 0.85.
pub fn likeness(a: &str, b: &str) -> Option<f64> {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    let alike = strsim::jaro_winkler(&a, &b);
    let is_slip = a.len().min(b.len()) >= SHORTEST && strsim::osa_distance(&a, &b) == 1;
    (alike >= CLOSE || is_slip).then_some(alike)
}

/// From here on two names are close.
const CLOSE: f64 = 0.85;

/// In shorter names, one letter says too little.
const SHORTEST: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_of_typing_are_close_and_other_words_are_not() {
        for (typed, meant) in [
            ("paralel", "parallel"),
            ("timout", "timeout"),
            ("rnu", "run"),
            ("taks", "task"),
            ("statsu", "status"),
            ("rust_stirct", "rust_strict"),
            ("minne", "mine"),
            ("shelfs", "shelf"),
            ("claude_code", "claude-code"),
            ("fiel", "file"),
            ("Codex", "codex"),
            ("titel", "title"),
            ("brnch", "branch"),
        ] {
            assert!(likeness(typed, meant).is_some(), "{typed} is not {meant}");
        }
        for (typed, other) in [
            ("foo", "run"),
            ("color", "command"),
            ("gpt", "codex"),
            ("taks", "status"),
            ("zzz", "watch"),
            ("deploy", "drain"),
            ("python", "node_strict"),
            ("my-agent", "gemini"),
            ("ls", "ps"),
            ("x", "y"),
        ] {
            assert!(likeness(typed, other).is_none(), "{typed} is {other}");
        }
        assert_eq!(nearest("taks", ["status", "task"]), Some("task"));
        assert_eq!(nearest("deploy", ["drain", "doctor"]), None);
    }
}
