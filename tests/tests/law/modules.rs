//! Which module of a crate uses which: never two each other, on whatever way round.

use std::collections::{BTreeMap, BTreeSet};

use crate::CRATES;
use crate::source::{SourceFile, files_of};

/// For each top-level module the others that it uses, with a file that does.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

#[test]
fn no_module_of_a_crate_is_used_by_what_it_uses() {
    let mut found = String::new();
    for krate in CRATES {
        let uses = uses_of(&files_of(krate));
        assert!(uses.len() > 5 && uses.values().any(|used| !used.is_empty()), "{krate}: {uses:?}");
        let circle = circle_in(&uses);
        if !circle.is_empty() {
            found += &format!("{krate}:\n{}\n", edges_of(&circle, &uses));
        }
    }
    assert!(found.is_empty(), "modules in a cycle:\n{found}");
}

/// Folders of the runner whose modules count each for itself, as if they were at the top.
const LAYERS: &[&str] = &["app", "cli"];

/// The top-level modules of a crate, and what they use of it: by `crate::…`, or by as many `super::` as lead out.
fn uses_of(files: &[SourceFile]) -> Uses {
    let flat: Vec<_> = files.iter().map(|file| (file, module_in_layer(&file.module))).collect();
    let modules: BTreeSet<&String> = flat.iter().filter_map(|(_, module)| module.first()).collect();
    let mut uses: Uses = modules.iter().map(|module| ((*module).clone(), BTreeMap::new())).collect();
    for (file, module) in &flat {
        let Some(own) = module.first() else { continue };
        let layer = own.split_once("::").map(|(layer, _)| layer);
        let words = words_in_layers(&file.words());
        for at in 0..words.len() {
            for used in named_from(&words, at, module.len()) {
                // What `super::` leads to is a module of the same layer.
                let beside =
                    layer.map(|layer| format!("{layer}::{used}")).filter(|one| modules.contains(one));
                let used = beside.as_ref().unwrap_or(used);
                if used != own && modules.contains(used) {
                    let seen = uses.get_mut(own).expect("a module");
                    seen.entry(used.clone()).or_insert_with(|| file.path.display().to_string());
                }
            }
        }
    }
    uses
}

/// `["app", "board", "any_board"]` as `["app::board", "any_board"]`.
fn module_in_layer(module: &[String]) -> Vec<String> {
    match module {
        [layer, module, rest @ ..] if LAYERS.contains(&layer.as_str()) => {
            [&[format!("{layer}::{module}")], rest].concat()
        }
        other => other.to_vec(),
    }
}

/// The same for paths: `crate::app::board::X` has `app::board` as one word, and `crate::app::{a, b}` is
/// `crate::{app::a, app::b}`.
fn words_in_layers(words: &[String]) -> Vec<String> {
    let mut flat = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let is_layer = LAYERS.contains(&words[at].as_str())
            && at >= 3
            && words[at - 3] == "crate"
            && words.get(at + 1).is_some_and(|word| word == ":");
        if !is_layer {
            flat.push(words[at].clone());
            at += 1;
            continue;
        }
        let layer = &words[at];
        at += 3;
        if words[at] != "{" {
            flat.push(format!("{layer}::{}", words[at]));
            at += 1;
            continue;
        }
        let mut open = 0;
        loop {
            let begins = open == 1 && matches!(words[at - 1].as_str(), "{" | ",") && words[at] != "}";
            match words[at].as_str() {
                "{" => open += 1,
                "}" => open -= 1,
                _ => {}
            }
            flat.push(if begins { format!("{layer}::{}", words[at]) } else { words[at].clone() });
            at += 1;
            if open == 0 {
                break;
            }
        }
    }
    flat
}

/// The modules that a path names which begins at a word: `crate::a`, `crate::{a::…, b}`, `super::a` from the top.
fn named_from(words: &[String], at: usize, depth: usize) -> Vec<&String> {
    let is_inside = at > 0 && words[at - 1] == ":";
    let mut next = match words[at].as_str() {
        "crate" if !is_inside => at + 1,
        "super" if !is_inside => {
            let mut end = at + 1;
            let mut left = depth.saturating_sub(1);
            while words.get(end + 2).is_some_and(|word| word == "super") {
                end += 3;
                left = left.saturating_sub(1);
            }
            if left > 0 {
                return Vec::new();
            }
            end
        }
        _ => return Vec::new(),
    };
    if words.get(next).is_none_or(|word| word != ":") || words.get(next + 1).is_none_or(|word| word != ":") {
        return Vec::new();
    }
    next += 2;
    if words.get(next).is_some_and(|word| word != "{") {
        return vec![&words[next]];
    }
    let mut named = Vec::new();
    let mut open = 0;
    for index in next..words.len() {
        match words[index].as_str() {
            "{" => open += 1,
            "}" => open -= 1,
            _ if open == 1 && matches!(words[index - 1].as_str(), "{" | ",") => named.push(&words[index]),
            _ => {}
        }
        if open == 0 {
            break;
        }
    }
    named
}

/// Modules that are left when whatever uses nothing of the rest is taken away, again and again, and then whatever is used by
/// nothing of it.
fn circle_in(uses: &Uses) -> BTreeSet<String> {
    let mut left: BTreeSet<String> = uses.keys().cloned().collect();
    loop {
        let is_used = |module: &String| left.iter().any(|other| uses[other].contains_key(module));
        let uses_some = |module: &String| uses[module].keys().any(|used| left.contains(used));
        let kept: BTreeSet<String> =
            left.iter().filter(|module| is_used(module) && uses_some(module)).cloned().collect();
        if kept.len() == left.len() {
            return kept;
        }
        left = kept;
    }
}

fn edges_of(circle: &BTreeSet<String>, uses: &Uses) -> String {
    let lines = circle.iter().flat_map(|module| {
        let used = uses[module].iter().filter(|(used, _)| circle.contains(*used));
        used.map(move |(used, file)| format!("  {module} -> {used} in {file}"))
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_cycle_within_a_layer_is_found() {
    let file = |module: &[&str], text: &str| SourceFile {
        path: module.join("/").into(),
        module: module.iter().map(|part| (*part).to_owned()).collect(),
        items: syn::parse_file(text).expect("Rust").items,
    };
    let found = uses_of(&[
        file(&["app"], ""),
        file(&["app", "a"], "use crate::app::{b::B, c};"),
        file(&["app", "b", "deep"], "use super::super::c::C;"),
        file(&["app", "c"], "fn f() { crate::app::a::g() }"),
        file(&["cli", "a"], "use crate::app::a::A; use crate::app::{b, c::{C, D}};"),
    ]);
    assert_eq!(found["cli::a"].keys().collect::<Vec<_>>(), ["app::a", "app::b", "app::c"]);
    let circle = circle_in(&found);
    assert_eq!(circle.into_iter().collect::<Vec<_>>(), ["app::a", "app::b", "app::c"]);
}

#[test]
fn a_cycle_is_found() {
    let uses = |pairs: &[(&str, &str)]| -> Uses {
        let mut uses = Uses::new();
        for (module, used) in pairs {
            uses.entry((*used).to_owned()).or_default();
            uses.entry((*module).to_owned()).or_default().insert((*used).to_owned(), "a file".to_owned());
        }
        uses
    };
    assert!(circle_in(&uses(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
    let found = circle_in(&uses(&[("z", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]));
    assert_eq!(found.into_iter().collect::<String>(), "abc");
    let words = |text: &str| -> Vec<String> {
        let file = SourceFile {
            path: "x".into(),
            module: vec!["x".into()],
            items: syn::parse_file(text).expect("Rust").items,
        };
        file.words()
    };
    let found = |text: &str, depth| -> Vec<String> {
        let words = words(text);
        let named = (0..words.len()).flat_map(|at| named_from(&words, at, depth));
        named.cloned().collect()
    };
    assert_eq!(found("use crate::{a::{A, b}, c, self};", 1), ["a", "c", "self"]);
    assert_eq!(found("fn f() { println!(\"{}\", crate::d::g()) }", 1), ["d"]);
    assert_eq!(found("use super::e::E; use super::super::f::F;", 2), ["f"]);
    assert_eq!(found("use super::e::E;", 1), ["e"]);
    assert!(found("use other::crate_::e; use std::fs;", 1).is_empty());
}
