//! How large a file, a function and a vocabulary may get.

use std::collections::BTreeMap;

use syn::spanned::Spanned;
use syn::{ImplItem, Item, TraitItem};

use crate::source::files_of;
use crate::{CRATES, sources};

const FILE: usize = 600;
const FUNCTION: usize = 80;
/// How many of a hundred definitions of types may share their name with another.
const SHARED: usize = 15;
/// The dialects of `protocols` mirror each other: the protocols' own nouns are called the same in each.
const OF_EACH_DIALECT: &[&str] = &["Artifact", "NewTask", "Priority", "Report", "Task"];

#[test]
fn no_file_is_too_long_to_read() {
    let folders = CRATES.iter().copied().chain(["tests"]);
    let lengths = folders.flat_map(sources).map(|(path, text)| (path, text.lines().count()));
    let long: Vec<_> = lengths.filter(|(_, lines)| *lines > FILE).collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn no_function_is_too_long_to_read() {
    let mut seen = 0;
    let mut long = Vec::new();
    for file in CRATES.iter().flat_map(|folder| files_of(folder)) {
        let functions = functions(&file.items);
        seen += functions.len();
        long.extend(
            functions.into_iter().filter(|(_, lines)| *lines > FUNCTION).map(|one| (file.path.clone(), one)),
        );
    }
    assert!(seen > 2000, "only {seen} functions were seen");
    assert!(long.is_empty(), "{long:#?}");
}

/// Each function with how many lines it has.
fn functions(items: &[Item]) -> Vec<(String, usize)> {
    let lines = |name: &syn::Ident, block: &syn::Block| {
        let span = block.span();
        (name.to_string(), span.end().line - span.start().line + 1)
    };
    let mut found = Vec::new();
    for item in items {
        match item {
            Item::Fn(one) => found.push(lines(&one.sig.ident, &one.block)),
            Item::Impl(block) => found.extend(block.items.iter().filter_map(|item| match item {
                ImplItem::Fn(one) => Some(lines(&one.sig.ident, &one.block)),
                _ => None,
            })),
            Item::Trait(one) => found.extend(one.items.iter().filter_map(|item| match item {
                TraitItem::Fn(one) => one.default.as_ref().map(|block| lines(&one.sig.ident, block)),
                _ => None,
            })),
            Item::Mod(module) => {
                found.extend(module.content.iter().flat_map(|(_, items)| functions(items)));
            }
            _ => {}
        }
    }
    found
}

#[test]
fn a_type_has_a_name_of_its_own() {
    // By name, the crates that have one.
    let mut named: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for krate in CRATES {
        for file in files_of(krate) {
            for name in types(&file.items) {
                named.entry(name).or_default().push(krate);
            }
        }
    }
    let all: usize = named.values().map(Vec::len).sum();
    let shared: usize = named.values().map(Vec::len).filter(|count| *count > 1).sum();
    assert!(all > 500, "only {all} types were seen");
    assert!(shared * 100 <= all * SHARED, "{shared} of {all} types share their name with another");
    let is_twice = |crates: &[&str]| crates.iter().enumerate().any(|(at, one)| crates[..at].contains(one));
    named.retain(|name, crates| !OF_EACH_DIALECT.contains(&name.as_str()) && is_twice(crates));
    assert!(named.is_empty(), "twice in one crate: {named:#?}");
}

fn types(items: &[Item]) -> Vec<String> {
    let mut found = Vec::new();
    for item in items {
        match item {
            Item::Struct(one) => found.push(one.ident.to_string()),
            Item::Enum(one) => found.push(one.ident.to_string()),
            Item::Union(one) => found.push(one.ident.to_string()),
            Item::Trait(one) => found.push(one.ident.to_string()),
            Item::Type(one) => found.push(one.ident.to_string()),
            Item::Mod(module) => found.extend(module.content.iter().flat_map(|(_, items)| types(items))),
            _ => {}
        }
    }
    found
}
