//! Reads an agent's text into a claim, by the protocol of the board.

use std::collections::BTreeSet;

use crate::claim::{AgentClaim, ClaimKind, LONGEST_TEXT};
use crate::detect::Protocol;
use crate::names::{AgentName, TaskId};
use crate::text::bounds::truncate;

/// The most bytes of a header that has aliases.
const LONGEST_WITH_ALIASES: usize = 2 << 10;

/// Reads an agent's text by the rules of its protocol.
pub fn read(protocol: Protocol, kind: ClaimKind, task: &TaskId, agent: &AgentName, text: &str) -> AgentClaim {
    let text = &truncate(text.to_owned(), LONGEST_TEXT);
    if has_aliases(header(text)) {
        return AgentClaim::unreadable(kind, text, "its header repeats parts of itself by aliases");
    }
    let claim = match (kind, protocol) {
        // No protocol has a format of its own for it.
        (ClaimKind::Verdict, _) => match crate::verdict::read(task, text) {
            Ok(verdict) => AgentClaim::Verdict(verdict),
            Err(why) => AgentClaim::NoVerdict { why },
        },
        (ClaimKind::Report, Protocol::Kodingx) => {
            AgentClaim::Report(crate::kodingx::read_report(text, agent).into())
        }
        (ClaimKind::Report, Protocol::Codifica) => {
            AgentClaim::Report(crate::codifica::read_report(text).into())
        }
        (ClaimKind::Report, other) => {
            AgentClaim::unreadable(kind, text, &format!("no report is read for `{other}`"))
        }
    };
    claim.bounded()
}

/// The lines of a text up to the end of its header.
fn header(text: &str) -> &str {
    let mut rules = 0;
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        end += line.len();
        rules += usize::from(line.trim_end() == "---");
        if rules == 2 {
            break;
        }
    }
    &text[..end]
}

/// Whether a header may become much larger when it is read: an anchor in it (`&a`) has an alias (`*a`), and it is longer
/// than the short text for which the parser's own bound, a hundred times its size, is enough. 60 KB took 40 seconds and
/// 1.6 GiB.
fn has_aliases(header: &str) -> bool {
    // The beginnings of names: any other character that one may hold, it holds in both.
    let ends_name = |c: char| !(c.is_alphanumeric() || c == '-' || c == '_');
    let names = |sign: char| -> BTreeSet<&str> {
        header.split(sign).skip(1).filter_map(|rest| rest.split(ends_name).next()).collect()
    };
    header.len() > LONGEST_WITH_ALIASES && names('&').intersection(&names('*')).any(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::{LONGEST_ENTRY, LONGEST_SENTENCE, ReportClaim};
    use crate::text::bounds::{LONGEST_LIST, MOST_ENTRIES};
    use proptest::prelude::*;

    fn task() -> TaskId {
        TaskId::parse("T0001").expect("an id")
    }

    fn of(protocol: Protocol, kind: ClaimKind, text: &str) -> AgentClaim {
        read(protocol, kind, &task(), &AgentName::parse("codex").expect("a name"), text)
    }

    const BOTH: [Protocol; 2] = [Protocol::Kodingx, Protocol::Codifica];

    fn report(protocol: Protocol, text: &str) -> ReportClaim {
        match of(protocol, ClaimKind::Report, text) {
            AgentClaim::Report(report) => *report,
            other => panic!("{other:?}"),
        }
    }

    /// The largest a claim can be, with what JSON adds to it.
    const LARGEST: usize = 8 * (LONGEST_TEXT + 3 * LONGEST_LIST);

    #[track_caller]
    fn assert_small(claim: &AgentClaim) {
        let written = serde_json::to_string(claim).expect("written");
        assert!(written.len() < LARGEST, "{} bytes", written.len());
        assert_eq!(&serde_json::from_str::<AgentClaim>(&written).expect("read"), claim);
        assert_eq!(&claim.clone().bounded(), claim, "what is bounded stays as it is");
    }

    fn whole(risks: &str) -> String {
        format!(
            "---\ntask_id: T0001\nagent: codex\nstatus: READY_FOR_REVIEW\nstarted_at: 2026-01-31T16:45:00Z\n\
             finished_at: 2026-01-31T16:45:00Z\nchanges: {{files_modified: []}}\ncommands_run: []\n\
             verification: {{dod_passed: true}}\nrisks: {risks}\nsummary: s\nartifacts: {risks}\n---\nDid it.\n"
        )
    }

    #[test]
    fn a_report_has_bounds_whatever_its_shape() {
        let many = format!("[{}]", "a, ".repeat(8_000));
        let long = format!("[\"{}\"]", "x".repeat(25_000));
        let deep = "[".repeat(30_000);
        let laughs: String = (1..=9)
            .map(|n| format!("\n  - &a{n} [{}]", vec![format!("*a{}", n - 1); 9].join(", ")))
            .collect();
        for protocol in BOTH {
            for risks in [&many, &long, &deep, &laughs] {
                assert_small(&of(protocol, ClaimKind::Report, &whole(risks)));
                assert_small(&of(protocol, ClaimKind::Verdict, &whole(risks)));
            }
            assert_small(&of(protocol, ClaimKind::Report, &"\u{1}".repeat(300_000)));
            assert_small(&of(protocol, ClaimKind::Report, &"\u{1F600}".repeat(300_000)));
        }
        let read = report(Protocol::Kodingx, &whole(&many));
        assert_eq!(read.risks.len(), MOST_ENTRIES, "{:?}", read.unread);
        assert_eq!(read.left_out, 7_000);
        assert_eq!(report(Protocol::Kodingx, &whole(&long)).risks[0].len(), LONGEST_ENTRY);
    }

    /// Aliases are read where they are few.
    #[test]
    fn no_report_grows_when_it_is_read() {
        let grown =
            |many: usize| whole(&format!("\n  - &a [{}]\n  - [{}]", "x, ".repeat(many), "*a, ".repeat(many)));
        let began = std::time::Instant::now();
        for protocol in BOTH {
            for many in [100, 200, 1_000, 4_000] {
                assert_small(&of(protocol, ClaimKind::Report, &grown(many)));
                assert_small(&of(protocol, ClaimKind::Verdict, &grown(many)));
            }
        }
        // One of them would take longer, if it grew.
        assert!(began.elapsed() < std::time::Duration::from_secs(30), "{:?}", began.elapsed());
        let why = report(Protocol::Kodingx, &grown(4_000)).unread;
        assert_eq!(why.as_deref(), Some("its header repeats parts of itself by aliases"));
        let read = report(Protocol::Kodingx, &whole("[&a one, *a]"));
        assert_eq!((read.risks, read.unread), (vec!["one".to_owned(); 2], None));
        let keys = whole(&format!("\n  - &a [{}]\n  - {{*a: 1}}", "x, ".repeat(1_000)));
        assert!(report(Protocol::Kodingx, &keys).unread.is_some(), "an alias as a key");
        let indented = format!("---\n ---\n{}", &keys[4..]);
        assert!(report(Protocol::Kodingx, &indented).unread.is_some(), "a rule begins its line");
        let globs = whole(&format!("[{}\"src/*.rs & &more, *.ts\"]", "\"a file\", ".repeat(400)));
        assert_eq!(report(Protocol::Kodingx, &globs).unread, None, "no alias");
        let words = format!("{}\nA & b, *d &d {}", whole("[]"), "word ".repeat(2_000));
        assert_eq!(report(Protocol::Kodingx, &words).unread, None, "words are not read");
    }

    #[test]
    fn what_is_within_the_bounds_is_told_whole() {
        let read = report(Protocol::Kodingx, &whole("[slow]"));
        assert_eq!((read.risks, read.passed, read.left_out), (vec!["slow".to_owned()], true, 0));
        assert_eq!((read.words.as_str(), read.unread), ("Did it.", None));
        let read = report(Protocol::Codifica, &whole("[src/a]"));
        assert_eq!(read.files[0].path, "src/a");
        assert_eq!((read.summary.as_deref(), read.blocked), (Some("s"), None));
    }

    #[test]
    fn what_could_not_be_read_keeps_a_builders_words_and_is_no_verdict() {
        let AgentClaim::Report(report) = AgentClaim::unreadable(ClaimKind::Report, "words", "too slow")
        else {
            panic!()
        };
        assert_eq!((report.words.as_str(), report.unread.as_deref()), ("words", Some("too slow")));
        let none = AgentClaim::unreadable(ClaimKind::Verdict, "verdict: PASS", &"x".repeat(9000));
        let AgentClaim::NoVerdict { why } = none else { panic!() };
        assert_eq!(why.len(), LONGEST_SENTENCE);
    }

    proptest! {
        #[test]
        fn any_text_is_read_into_a_claim_with_bounds(text in any::<String>(), head in any::<String>()) {
            for protocol in Protocol::ALL {
                for kind in ClaimKind::ALL {
                    assert_small(&of(protocol, kind, &text));
                    assert_small(&of(protocol, kind, &whole(&head)));
                }
            }
        }
    }
}
