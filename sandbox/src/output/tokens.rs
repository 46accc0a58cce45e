//! Well-known shapes of credentials: what they begin with, and what has to follow for it to be one.
//!
//! A beginning is found by the search; here it is judged by where it stands and by the bytes after it. Judging
//! looks at a bounded number of bytes. What continues a credential once it is known to be one is a [`TokenRun`],
//! which needs no memory however long it gets.

/// The most bytes before a beginning that say something about it.
pub(super) const CONTEXT: usize = 32;

/// A kind of credential.
#[derive(Debug)]
pub(super) struct TokenPattern {
    pub(super) beginning: &'static [u8],
    body: TokenBody,
}

/// What has to follow.
#[derive(Debug, Clone, Copy)]
enum TokenBody {
    /// At least so many of a class.
    Of(ByteClass, usize),
    /// At least so many, and a digit among the first [`PROOF`]: words with hyphens have none.
    WithDigit(ByteClass, usize),
    /// Three parts with dots between them; the second begins as the first does.
    WebToken,
    /// The rest of a line that begins a private key, and some of the key.
    PrivateKey,
    /// The value of a header that names a scheme.
    Header,
}

const PROOF: usize = 64;
const LONGEST_WEB_TOKEN_HEADER: usize = 2048;
const LONGEST_KEY_LABEL: usize = 40;
/// A line that begins a key is quoted in many a source. One with this much behind it is a key.
const LEAST_KEY: usize = 24;
const LEAST_HEADER_VALUE: usize = 8;
/// The largest keys in use take a quarter of this.
const LARGEST_KEY: u32 = 64 * 1024;

pub(super) const SHAPES: &[TokenPattern] = {
    use TokenBody::{Header, Of, PrivateKey, WebToken, WithDigit};
    const fn shape(beginning: &'static str, body: TokenBody) -> TokenPattern {
        TokenPattern { beginning: beginning.as_bytes(), body }
    }
    &[
        // GitHub
        shape("ghp_", Of(ByteClass::Alphanumeric, 36)),
        shape("gho_", Of(ByteClass::Alphanumeric, 36)),
        shape("ghu_", Of(ByteClass::Alphanumeric, 36)),
        shape("ghs_", Of(ByteClass::Alphanumeric, 36)),
        shape("ghr_", Of(ByteClass::Alphanumeric, 36)),
        shape("github_pat_", Of(ByteClass::Url, 40)),
        // GitLab
        shape("glpat-", Of(ByteClass::Url, 20)),
        // OpenAI, Anthropic and others
        shape("sk-", WithDigit(ByteClass::Url, 24)),
        // Amazon's key ids; the keys themselves have no shape
        shape("AKIA", Of(ByteClass::Capital, 16)),
        shape("ASIA", Of(ByteClass::Capital, 16)),
        // Google
        shape("AIza", Of(ByteClass::Url, 35)),
        // Slack
        shape("xoxa-", WithDigit(ByteClass::Url, 20)),
        shape("xoxb-", WithDigit(ByteClass::Url, 20)),
        shape("xoxp-", WithDigit(ByteClass::Url, 20)),
        shape("xoxr-", WithDigit(ByteClass::Url, 20)),
        shape("xoxs-", WithDigit(ByteClass::Url, 20)),
        // Registries of packages
        shape("npm_", Of(ByteClass::Alphanumeric, 36)),
        shape("pypi-AgE", Of(ByteClass::Url, 50)),
        // Stripe
        shape("sk_live_", Of(ByteClass::Alphanumeric, 20)),
        shape("rk_live_", Of(ByteClass::Alphanumeric, 20)),
        shape("eyJ", WebToken),
        shape("-----BEGIN ", PrivateKey),
        shape("Bearer ", Header),
        shape("bearer ", Header),
        shape("Basic ", Header),
        shape("basic ", Header),
    ]
};

/// What is to be said about a beginning.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TokenMatch {
    /// None of ours.
    Nothing,
    /// More bytes are needed.
    Unsure,
    /// A credential from `start` on, which goes on as `run` does from `body` on.
    Credential { start: usize, body: usize, run: TokenRun },
}

impl TokenPattern {
    /// Whether a credential of this shape can begin after these bytes.
    pub(super) fn may_follow(&self, before: &[u8]) -> bool {
        let before = &before[before.len().saturating_sub(CONTEXT)..];
        match self.body {
            TokenBody::PrivateKey => true,
            TokenBody::Header => is_authorization(before),
            _ => is_word_start(before),
        }
    }

    /// Judges `rest`, which starts with the beginning. `ended` says that nothing comes after it.
    pub(super) fn judge(&self, rest: &[u8], ended: bool) -> TokenMatch {
        let body = self.beginning.len();
        let after = &rest[body..];
        let unsure = if ended { TokenMatch::Nothing } else { TokenMatch::Unsure };
        let credential = |start, class| TokenMatch::Credential { start, body, run: TokenRun::new(class) };
        match self.body {
            TokenBody::Of(class, least) => match class.count(after, least) {
                enough if enough == least => credential(0, class),
                all if all == after.len() => unsure,
                _ => TokenMatch::Nothing,
            },
            TokenBody::WithDigit(class, least) => {
                let count = class.count(after, PROOF);
                let digit = after[..count].iter().any(u8::is_ascii_digit);
                match count {
                    _ if count >= least && digit => credential(0, class),
                    PROOF => TokenMatch::Nothing,
                    all if all == after.len() => unsure,
                    _ => TokenMatch::Nothing,
                }
            }
            TokenBody::WebToken => {
                let header = ByteClass::Url.count(after, LONGEST_WEB_TOKEN_HEADER);
                let rest = &after[header..];
                match b".eyJ" {
                    second if rest.starts_with(second) && header >= 7 => credential(0, ByteClass::Dotted),
                    second if second.starts_with(rest) => unsure,
                    _ => TokenMatch::Nothing,
                }
            }
            TokenBody::PrivateKey => {
                let is_label =
                    |byte: &&u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || **byte == b' ';
                let label = after.iter().take(LONGEST_KEY_LABEL).take_while(is_label).count();
                let (label, rest) = after.split_at(label);
                let is_key = label.ends_with(b"PRIVATE KEY") || label.ends_with(b"PRIVATE KEY BLOCK");
                match rest.strip_prefix(KEY_RULE) {
                    Some(key) if is_key => match ByteClass::Key.count(key, LEAST_KEY) {
                        LEAST_KEY => {
                            let body = body + label.len() + KEY_RULE.len();
                            TokenMatch::Credential { start: 0, body, run: TokenRun::new(ByteClass::Key) }
                        }
                        all if all == key.len() => unsure,
                        _ => TokenMatch::Nothing,
                    },
                    None if KEY_RULE.starts_with(rest) => unsure,
                    _ => TokenMatch::Nothing,
                }
            }
            TokenBody::Header => match ByteClass::Value.count(after, LEAST_HEADER_VALUE) {
                LEAST_HEADER_VALUE => credential(body, ByteClass::Value),
                all if all == after.len() => unsure,
                _ => TokenMatch::Nothing,
            },
        }
    }
}

const KEY_RULE: &[u8] = b"-----";
const KEY_END: &[u8] = b"-----END ";

/// Nothing that belongs to a word, or the end of something that is none although its last letter looks so: a
/// colour, an escaped character in a string, an encoded one in an address.
fn is_word_start(before: &[u8]) -> bool {
    match before {
        [] => true,
        [.., last] if !ByteClass::Url.contains(*last) => true,
        [.., b'\\', b'n' | b'r' | b't'] => true,
        [.., b'%', high, low] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => true,
        [colour @ .., b'm'] => {
            let numbers =
                colour.iter().rev().take_while(|byte| byte.is_ascii_digit() || **byte == b';').count();
            colour[..colour.len() - numbers].ends_with(b"[")
        }
        _ => false,
    }
}

/// `Authorization: `, also as a key of JSON or of a mapping.
fn is_authorization(before: &[u8]) -> bool {
    const NAME: &[u8] = b"authorization";
    let is_sign = |byte: &&u8| matches!(byte, b' ' | b':' | b'=' | b'"' | b'\'' | b'\\');
    let signs = before.iter().rev().take(8).take_while(is_sign).count();
    let name = &before[..before.len() - signs];
    signs > 0 && name.len() >= NAME.len() && name[name.len() - NAME.len()..].eq_ignore_ascii_case(NAME)
}

/// Which bytes a credential is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ByteClass {
    Alphanumeric,
    Capital,
    /// Letters, digits, `-` and `_`.
    Url,
    /// Those and dots.
    Dotted,
    /// Everything between the first and the last line of a key, also inside a string.
    Key,
    /// Up to a space, a quote or the end of a list's item.
    Value,
}

impl ByteClass {
    fn contains(self, byte: u8) -> bool {
        let alphanumeric = byte.is_ascii_alphanumeric();
        match self {
            Self::Alphanumeric => alphanumeric,
            Self::Capital => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Self::Url => alphanumeric || matches!(byte, b'-' | b'_'),
            Self::Dotted => alphanumeric || matches!(byte, b'-' | b'_' | b'.'),
            Self::Key => {
                alphanumeric
                    || byte.is_ascii_whitespace()
                    || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'\\' | b':' | b',' | b'.' | b'(' | b')')
            }
            Self::Value => {
                byte.is_ascii_graphic()
                    && !matches!(byte, b'"' | b'\'' | b'`' | b'\\' | b',' | b';' | b'<' | b'>')
            }
        }
    }

    /// How many of the first bytes belong to it, at most `most`.
    fn count(self, bytes: &[u8], most: usize) -> usize {
        bytes.iter().take(most).take_while(|byte| self.contains(**byte)).count()
    }
}

/// A credential that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenRun {
    pub(super) class: ByteClass,
    /// How far the last line of a key was seen; no other class has one.
    ending: KeyEnding,
    left: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyEnding {
    /// So many bytes of [`KEY_END`].
    Awaited(usize),
    /// Its label, and so many hyphens after it.
    Label(usize),
    Over,
}

impl TokenRun {
    fn new(class: ByteClass) -> Self {
        // The line that begins a key ends with the same hyphens that begin its last line.
        Self { class, ending: KeyEnding::Awaited(KEY_RULE.len()), left: LARGEST_KEY }
    }

    /// How many of the next bytes belong to it. When that is not all of them, it is over.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> usize {
        if self.class != ByteClass::Key {
            return self.class.count(bytes, usize::MAX);
        }
        bytes.iter().take_while(|byte| self.goes_on_with(**byte)).count()
    }

    fn goes_on_with(&mut self, byte: u8) -> bool {
        if self.left == 0 || self.ending == KeyEnding::Over || !self.class.contains(byte) {
            self.ending = KeyEnding::Over;
            return false;
        }
        self.left -= 1;
        self.ending = match (self.ending, byte) {
            (KeyEnding::Awaited(seen), _) if byte == KEY_END[seen] => match seen + 1 {
                all if all == KEY_END.len() => KeyEnding::Label(0),
                seen => KeyEnding::Awaited(seen),
            },
            (KeyEnding::Awaited(seen), b'-') if seen == KEY_RULE.len() => KeyEnding::Awaited(seen),
            (KeyEnding::Awaited(_), b'-') => KeyEnding::Awaited(1),
            (KeyEnding::Awaited(_), _) => KeyEnding::Awaited(0),
            (KeyEnding::Label(hyphens), b'-') if hyphens + 1 == KEY_RULE.len() => KeyEnding::Over,
            (KeyEnding::Label(hyphens), b'-') => KeyEnding::Label(hyphens + 1),
            (KeyEnding::Label(_), _) => KeyEnding::Label(0),
            (KeyEnding::Over, _) => KeyEnding::Over,
        };
        true
    }
}
