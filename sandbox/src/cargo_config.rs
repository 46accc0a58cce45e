//! Cargo's configuration without the credentials in it.
//!
//! `~/.cargo/config.toml` says which registries, linkers and flags a build takes, so a build needs it; and it may hold
//! tokens, addresses with passwords in them, and variables of any kind. Where it does, an agent gets another one.

use toml::{Table, Value};

/// What is to be shown in place of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SanitizedConfig {
    /// There is nothing secret in it.
    AsItIs,
    /// The same, without what is.
    Instead(String),
    /// What it holds can't be known.
    Nothing,
}

/// A configuration of at most this many bytes is written by hand; a larger one is not shown.
pub(crate) const LARGEST: usize = 32 * 1024;

/// Without any of these there is nothing to look for. A name may be written with escapes, which begin with a backslash.
const SIGNS: &[&str] = &["token", "secret", "pass", "credential", "key", "auth", "@", "\\"];

/// Parts of names whose values are secrets, wherever they are.
const SECRET: &[&str] = &["token", "secret", "password", "passwd", "credential"];
/// The same of variables, which any program may set.
const SECRET_VARIABLE: &[&str] = &["key", "pass", "auth"];

/// Looks at a configuration.
pub(crate) fn without_credentials(text: &str) -> SanitizedConfig {
    let lower = text.to_lowercase();
    if text.len() > LARGEST {
        return SanitizedConfig::Nothing;
    }
    if !SIGNS.iter().any(|sign| lower.contains(sign)) {
        return SanitizedConfig::AsItIs;
    }
    let Ok(whole) = text.parse::<Table>() else { return SanitizedConfig::Nothing };
    let mut cleaned = whole.clone();
    clean(&mut cleaned, false);
    match cleaned == whole {
        true => SanitizedConfig::AsItIs,
        false => SanitizedConfig::Instead(cleaned.to_string()),
    }
}

/// Takes out what is secret. `variables` says whether the table's own names are those of variables.
fn clean(table: &mut Table, variables: bool) {
    table.retain(|name, value| {
        let name = name.to_lowercase();
        let is = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        // A registry may have any name; what it has below that is looked at by itself.
        let secret = match value {
            Value::Table(_) => (variables && is(SECRET)) || name == "credential-alias",
            _ => is(SECRET),
        };
        !(secret || variables && is(SECRET_VARIABLE))
    });
    for (name, value) in table.iter_mut() {
        clean_value(value, name == "env", name == "proxy");
    }
}

fn clean_value(value: &mut Value, variables: bool, is_proxy: bool) {
    match value {
        Value::Table(table) => clean(table, variables),
        Value::Array(all) => all.iter_mut().for_each(|one| clean_value(one, false, is_proxy)),
        Value::String(text) => *text = without_user(text, is_proxy),
        _ => {}
    }
}

/// An address without who it is asked as. Over ssh a name alone is no secret.
fn without_user(text: &str, is_proxy: bool) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest),
        None if is_proxy => (None, text),
        None => return text.to_owned(),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let Some((user, host)) = rest[..end].rsplit_once('@') else { return text.to_owned() };
    if scheme.is_some_and(|scheme| scheme.ends_with("ssh")) && !user.contains(':') {
        return text.to_owned();
    }
    let scheme = scheme.map(|scheme| format!("{scheme}://")).unwrap_or_default();
    format!("{scheme}{host}{}", &rest[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_secret_is_left_out_and_nothing_else() {
        let text = r#"
            [registry]
            default = "mine"
            token = "s3cret"
            global-credential-providers = ["cargo:token-from-stdout echo s3cret"]
            [registries.mine]
            index = "sparse+https://me:s3cret@crates.example/index/"
            credential-provider = ["cargo:token-from-stdout", "echo", "s3cret"]
            [registries."a-token-of-love"]
            index = "ssh://git@crates.example/index.git"
            "to\u006ben" = "s3cret"
            secret-key = "s3cret"
            [credential-alias]
            a = ["echo", "s3cret"]
            [http]
            proxy = "me:s3cret@proxy.example:3128"
            [source.crates-io]
            replace-with = "mirror"
            [source.mirror]
            registry = "https://s3cret@mirror.example/index?x=@y"
            [env]
            API_KEY = "s3cret"
            NPM_TOKEN = { value = "s3cret", force = true }
            OPENSSL_DIR = "/opt/ssl"
            [target.x86_64-unknown-linux-gnu]
            rustflags = ["-C", "link-arg=-fuse-ld=mold"]
        "#;
        let SanitizedConfig::Instead(shown) = without_credentials(text) else {
            panic!("there is something in it")
        };
        assert!(!shown.contains("s3cret"), "{shown}");
        for kept in [
            "sparse+https://crates.example/index/",
            "ssh://git@crates.example/index.git",
            "proxy.example:3128",
            "https://mirror.example/index?x=@y",
            "OPENSSL_DIR",
            "replace-with",
            "-fuse-ld=mold",
        ] {
            assert!(shown.contains(kept), "{kept}: {shown}");
        }
        assert_eq!(without_credentials(&shown), SanitizedConfig::AsItIs, "once is enough");
    }

    #[test]
    fn what_is_harmless_stays_and_what_nobody_understands_is_not_shown() {
        assert_eq!(without_credentials("[build]\njobs = 2\n"), SanitizedConfig::AsItIs);
        assert_eq!(
            without_credentials("[http]\nproxy = \"http://proxy:3128\" # no token\n"),
            SanitizedConfig::AsItIs
        );
        assert_eq!(without_credentials("[registry\ntoken = \"x\""), SanitizedConfig::Nothing);
        assert_eq!(without_credentials(&"# x\n".repeat(LARGEST)), SanitizedConfig::Nothing);
    }
}
