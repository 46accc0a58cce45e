//! The documents, held to what they say: every command shown in them is run, and prints what they show.
//!
//! A block marked `console` is a session: lines that begin with `$ ` are typed, what follows is what they print. `…`
//! stands for anything within a line, a line that is `…` alone for any number of lines. The blocks of a document are
//! one session, in one folder. A block marked `toml` is an `agency.toml`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use agency_tests::ground::Ground;

fn documents() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

fn read(name: &str) -> String {
    fs::read_to_string(documents().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The blocks of a kind, each with its first line's number.
fn blocks(text: &str, kind: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if line == format!("```{kind}") {
            let inside = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
            found.push((number + 2, inside.map(|line| format!("{line}\n")).collect()));
        }
    }
    found
}

/// A line that is typed, and what it should print.
struct Exchange {
    line: usize,
    typed: String,
    shown: Vec<String>,
}

fn session(text: &str) -> Vec<Exchange> {
    let mut all: Vec<Exchange> = Vec::new();
    for (first, block) in blocks(text, "console") {
        let mut open = false;
        for (offset, line) in block.lines().enumerate() {
            match (line.strip_prefix("$ "), line.strip_prefix("> "), all.last_mut()) {
                (Some(typed), ..) => {
                    all.push(Exchange { line: first + offset, typed: typed.to_owned(), shown: Vec::new() });
                    open = true;
                }
                (None, Some(more), Some(last)) if open && last.shown.is_empty() => {
                    last.typed.push('\n');
                    last.typed.push_str(more);
                }
                (None, _, Some(last)) if open => last.shown.push(line.to_owned()),
                _ => panic!("line {}: what is this the answer to?", first + offset),
            }
        }
    }
    all
}

/// Whether a line is as it is shown, with `…` for anything.
fn is_like(line: &str, shown: &str) -> bool {
    let mut parts = shown.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        (rest, last) = (&rest[at + part.len()..], Some(part));
    }
    rest.is_empty() || last == Some("")
}

fn are_like(lines: &[&str], shown: &[String]) -> bool {
    match shown.split_first() {
        None => lines.is_empty(),
        Some((any, rest)) if any == "…" => {
            (0..=lines.len()).any(|skipped| are_like(&lines[skipped..], rest))
        }
        Some((first, rest)) => match lines.split_first() {
            Some((line, more)) => is_like(line, first) && are_like(more, rest),
            None => false,
        },
    }
}

#[test]
fn likeness_is_what_it_should_be() {
    assert!(is_like("T0001 done, 12ab (0.3 s)", "T0001 done, … (…)"));
    assert!(is_like("abc", "…") && is_like("", "…") && is_like("abc", "a…c"));
    assert!(!is_like("abc", "ab") && !is_like("abc", "…b") && !is_like("xabc", "a…"));
    let shown = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    assert!(are_like(&["a", "b", "c"], &shown(&["a", "…", "c"])) && are_like(&[], &shown(&["…"])));
    assert!(!are_like(&["a", "b"], &shown(&["a"])) && !are_like(&["a"], &shown(&["a", "b"])));
}

/// Runs a document's session in a folder of its own.
fn hold(name: &str) {
    let ground = Ground::of_nothing();
    let exchanges = session(&read(name));
    assert!(!exchanges.is_empty(), "{name} shows nothing");
    let program = ground.program_path().parent().expect("a folder").display().to_string();
    for Exchange { line, typed, shown } in exchanges {
        let path = format!("{program}:{}", std::env::var("PATH").unwrap_or_default());
        let output = ground
            .program(Path::new("timeout"))
            .args(["100", "sh", "-c", &format!("exec 2>&1\n{typed}")])
            .env("PATH", path)
            .stdin(Stdio::null())
            .output()
            .expect("a shell starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines: Vec<&str> = said.lines().collect();
        assert!(
            are_like(&lines, &shown),
            "docs/{name}:{line}: `{typed}` is said to print\n{}\nand prints\n{said}",
            shown.join("\n")
        );
        check_messages(&format!("docs/{name}:{line}"), &lines);
    }
}

/// A message has at most three lines, and is printed once. What comes next is no error, and may list commands.
fn check_messages(place: &str, lines: &[&str]) {
    let mut seen = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("agency: ")) {
        let more = lines[at + 1..].iter().take_while(|line| line.starts_with("  ")).count();
        assert!(
            more < 3 || line.starts_with("agency: next: "),
            "{place}: a message of {} lines: {line}",
            more + 1
        );
        assert!(!seen.contains(line), "{place}: printed twice: {line}");
        seen.push(*line);
    }
}

#[test]
fn a_message_that_is_long_or_printed_twice_is_found() {
    let is_refused = |lines: &[&str]| std::panic::catch_unwind(|| check_messages("here", lines)).is_err();
    assert!(!is_refused(&["agency: a", "  hint: b", "agency: c", "T0001"]));
    assert!(!is_refused(&["agency: next: a", "    b", "    c", "    d"]));
    assert!(
        is_refused(&["agency: a", "    b", "    c", "    d"]) && is_refused(&["agency: a", "x", "agency: a"])
    );
}

macro_rules! documents {
    ($($test:ident $name:literal)*) => {
        $(#[test]
        fn $test() {
            hold($name);
        })*

        /// A document with a session that is not held is found here.
        #[test]
        fn every_session_is_held() {
            let held = [$($name),*];
            for entry in fs::read_dir(documents()).expect("documents").flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.ends_with(".md") && !blocks(&read(&name), "console").is_empty() {
                    assert!(held.contains(&name.as_str()), "{name} is not held to what it shows");
                }
            }
        }
    };
}

documents! {
    quick_start "quick-start.md"
    codifica "codifica.md"
    concepts "concepts.md"
    agents "agents.md"
    configuration "configuration.md"
    exit_codes "exit-codes.md"
    troubleshooting "troubleshooting.md"
    recipes "recipes.md"
    results "results.md"
}

#[test]
fn every_setting_is_explained_where_people_look_for_it() {
    let ground = Ground::without_board(&[]);
    let known = ground.ok(&["config", "explain", "--json"]).json();
    let text = read("configuration.md");
    for setting in known["settings"].as_array().expect("settings") {
        let key = setting["key"].as_str().expect("a key").replace('*', "NAME");
        assert!(text.contains(&format!("`{key}`")), "configuration.md does not know `{key}`");
    }
}

#[test]
fn every_configuration_shown_is_one() {
    for entry in fs::read_dir(documents()).expect("documents").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.ends_with(".md") {
            continue;
        }
        for (line, block) in blocks(&read(&name), "toml") {
            let ground = Ground::without_board(&[]);
            ground.write("shown.toml", block);
            let said = ground.agency(&["config", "explain", "--config", "shown.toml"]);
            assert_eq!(said.code, 0, "docs/{name}:{line}: {said:?}");
        }
    }
}

/// The pages that people read: the README and everything in `docs/`.
fn pages() -> Vec<PathBuf> {
    let mut found = vec![documents().join("../README.md"), documents().join("../CONTRIBUTING.md")];
    let mut waiting = vec![documents()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).expect("documents").flatten() {
            match entry.path() {
                path if path.is_dir() => waiting.push(path),
                path => found.extend((path.extension().is_some_and(|end| end == "md")).then_some(path)),
            }
        }
    }
    found
}

/// A heading as a link names it.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().trim().replace(' ', "-")
}

#[test]
fn every_link_leads_to_a_page_and_a_heading() {
    let mut count = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).expect("text").replace('\n', " ");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link) {
            if link.contains("://") || link.contains(' ') {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target =
                if file.is_empty() { page.clone() } else { page.parent().expect("a folder").join(file) };
            assert!(target.exists(), "{} leads to {link}", page.display());
            count += 1;
            if heading.is_empty() {
                continue;
            }
            let target = fs::read_to_string(&target).expect("text");
            let mut headings = target.lines().filter(|line| line.starts_with('#'));
            let is_there = headings.any(|line| anchor(line.trim_start_matches('#')) == heading);
            assert!(is_there, "{} leads to {link}, and there is no such heading", page.display());
        }
    }
    assert!(count > 100, "only {count} links");
}

/// The texts of all tests: those of `tests/`, those beside the crates, and what stands below `cfg(test)`.
fn test_sources() -> String {
    let root = documents().join("..");
    let mut texts = String::new();
    let mut waiting: Vec<PathBuf> =
        ["tests", "runner", "supervisor", "landing", "profiles", "protocols", "sandbox"]
            .map(|name| root.join(name))
            .into();
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|end| end == "rs" || end == "txt") {
                let text = fs::read_to_string(&path).unwrap_or_default();
                let is_test = path.components().any(|part| part.as_os_str() == "tests");
                let of_tests = if is_test {
                    Some(text.as_str())
                } else {
                    text.split_once("#[cfg(test)]").map(|(_, rest)| rest)
                };
                texts.push_str(of_tests.unwrap_or_default());
            }
        }
    }
    texts
}

/// The sentences that a heading quotes, each as its parts between `…`.
fn quoted(heading: &str) -> Vec<Vec<&str>> {
    let sentences = heading.split('"').skip(1).step_by(2);
    sentences
        .map(|sentence| sentence.split('…').map(|part| part.trim_matches([' ', '`', ':', ','])).collect())
        .collect()
}

#[test]
fn every_message_of_the_troubleshooting_page_is_in_a_test() {
    let page = read("troubleshooting.md");
    let tests = test_sources();
    let mut missing = Vec::new();
    for section in page.split("\n### ").skip(1) {
        let heading = section.lines().next().unwrap_or_default();
        let shown: String = blocks(section, "console").into_iter().map(|(_, block)| block).collect();
        let sentences = quoted(heading);
        assert!(!sentences.is_empty(), "a heading without a message: {heading}");
        for parts in sentences {
            // What stands between quotes of code differs from case to case.
            let is_there = |text: &str| {
                parts.iter().all(|part| part.split('`').all(|piece| text.contains(piece.trim())))
            };
            if !is_there(&shown) && !tests.lines().any(is_there) {
                missing.push(format!("{heading}: {parts:?}"));
            }
        }
    }
    assert!(missing.is_empty(), "no test has these messages:\n{}", missing.join("\n"));
}
