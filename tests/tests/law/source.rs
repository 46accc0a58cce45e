//! The sources of a crate as syntax: what counts is code that people run, so whatever is compiled only for tests is left
//! out.

use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Item};

use crate::{root, sources};

/// One file of a crate, without its tests.
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    /// Where the file is in its crate: `["job", "shim"]`; empty for the crate's root.
    pub(crate) module: Vec<String>,
    pub(crate) items: Vec<Item>,
}

/// Every file of a crate that is compiled outside of tests.
pub(crate) fn files_of(folder: &str) -> Vec<SourceFile> {
    let src = root().join(folder).join("src");
    let parsed = sources(&format!("{folder}/src")).into_iter().filter_map(|(path, text)| {
        let module = module_of(path.strip_prefix(&src).expect("below"))?;
        let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Some(SourceFile { path, module, items: file.items.into_iter().filter_map(without_tests).collect() })
    });
    parsed.collect()
}

/// `None` for files of tests.
fn module_of(path: &Path) -> Option<Vec<String>> {
    let mut module: Vec<String> = path
        .with_extension("")
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    if module.iter().any(|part| part == "tests") {
        return None;
    }
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    Some(module)
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && attribute.meta.to_token_stream().to_string().contains("(test")
    })
}

/// An item, and what is inside it, without what is compiled only for tests.
fn without_tests(item: Item) -> Option<Item> {
    match item {
        Item::Mod(mut module) => {
            if is_for_tests(&module.attrs) {
                return None;
            }
            if let Some((brace, items)) = module.content.take() {
                module.content = Some((brace, items.into_iter().filter_map(without_tests).collect()));
            }
            Some(Item::Mod(module))
        }
        Item::Impl(mut block) => {
            if is_for_tests(&block.attrs) {
                return None;
            }
            block.items.retain(|item| match item {
                syn::ImplItem::Fn(function) => !is_for_tests(&function.attrs),
                _ => true,
            });
            Some(Item::Impl(block))
        }
        Item::Fn(function) if is_for_tests(&function.attrs) => None,
        Item::Use(import) if is_for_tests(&import.attrs) => None,
        Item::Struct(one) if is_for_tests(&one.attrs) => None,
        Item::Const(one) if is_for_tests(&one.attrs) => None,
        other => Some(other),
    }
}

impl SourceFile {
    /// The code as words, without comments and white space.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        for item in &self.items {
            flatten(item.to_token_stream(), &mut words);
        }
        words
    }
}

fn flatten(tokens: TokenStream, words: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    proc_macro2::Delimiter::Brace => ("{", "}"),
                    proc_macro2::Delimiter::Bracket => ("[", "]"),
                    _ => ("(", ")"),
                };
                words.push(open.to_owned());
                flatten(group.stream(), words);
                words.push(close.to_owned());
            }
            other => words.push(other.to_string()),
        }
    }
}
