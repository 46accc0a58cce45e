use super::*;
use proptest::prelude::*;

const GITHUB: &str = "ghp_0123456789abcdefABCDEF0123456789abcd";

fn needles(secrets: &[(&str, &str)]) -> Rc<RedactionPatterns> {
    let secret = |(name, value): &(&str, &str)| NamedSecret { name: (*name).into(), value: (*value).into() };
    Rc::new(RedactionPatterns::new(&secrets.iter().map(secret).collect::<Vec<_>>()))
}

fn redact_pieces<'a>(
    needles: &Rc<RedactionPatterns>,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (Vec<u8>, u64) {
    let (mut redactor, mut out) = (Redactor::new(Rc::clone(needles)), Vec::new());
    for piece in pieces {
        redactor.push(piece, &mut |bytes| out.extend_from_slice(bytes));
    }
    redactor.finish(&mut |bytes| out.extend_from_slice(bytes));
    (out, redactor.count())
}

fn redact(secrets: &[(&str, &str)], text: &str) -> String {
    let needles = needles(secrets);
    let (whole, count) = redact_pieces(&needles, std::iter::once(text.as_bytes()));
    let (bytewise, again) = redact_pieces(&needles, text.as_bytes().chunks(1));
    assert_eq!((&whole, count), (&bytewise, again), "{text}");
    String::from_utf8_lossy(&whole).into_owned()
}

#[test]
fn values_are_replaced_by_their_names() {
    let secrets = &[("KEY", "hunter2hunter2"), ("OTHER", "correct horse")];
    assert_eq!(redact(secrets, "a hunter2hunter2 b"), "a [redacted: KEY] b");
    assert_eq!(
        redact(secrets, "correct horsecorrect horsehunter2hunter2"),
        "[redacted: OTHER][redacted: OTHER][redacted: KEY]"
    );
    assert_eq!(redact(secrets, "hunter2hunter hunter2"), "hunter2hunter hunter2");
}

#[test]
fn overlapping_nested_and_identical_values_leave_nothing() {
    let secrets = &[("ONE", "abcdefgh"), ("TWO", "efghijkl"), ("THREE", "fghi1234"), ("SAME", "abcdefgh")];
    assert_eq!(redact(secrets, "-abcdefghijkl-"), "-[redacted: ONE]-");
    assert_eq!(redact(secrets, "abcdefghi1234"), "[redacted: ONE]");
    let nested = &[("OUTER", "0123456789abcdef"), ("INNER", "456789ab"), ("BEGIN", "01234567")];
    assert_eq!(redact(nested, "0123456789abcdef"), "[redacted: OUTER]");
    assert_eq!(redact(nested, "0123456789abcdex"), "[redacted: BEGIN]cdex");
    let periodic = &[("KEY", "aaaaaaaab"), ("ALL", "aaaaaaaa")];
    assert_eq!(redact(periodic, "aaaaaaaaaaaaaab!"), "[redacted: ALL]!");
}

#[test]
fn short_values_are_left_alone() {
    let secrets = &[("EMPTY", ""), ("ONE", "1"), ("PIN", "1234567")];
    assert_eq!(redact(secrets, "1 1234567"), "1 1234567");
}

#[test]
fn lines_of_a_value_end_as_the_stream_has_it() {
    let secrets = &[("KEY", "first line\nsecond\n")];
    assert_eq!(redact(secrets, "<first line\nsecond>"), "<[redacted: KEY]>");
    assert_eq!(redact(secrets, "<first line\r\nsecond>"), "<[redacted: KEY]>");
}

#[test]
fn a_value_that_was_cut_off_is_taken_out_when_most_of_it_is_there() {
    let secrets = &[("KEY", "0123456789abcdef")];
    assert_eq!(redact(secrets, "x0123456789abcde"), "x[redacted: KEY]");
    assert_eq!(redact(secrets, "x012345678"), "x[redacted: KEY]");
    assert_eq!(redact(secrets, "x01234567"), "x01234567");
}

#[test]
fn a_long_value_is_compared_in_full() {
    let long = "0123456789".repeat(10_000);
    let secrets = &[("LONG", long.as_str())];
    let needles = needles(secrets);
    for (text, expected) in [
        (format!("a{long}b"), "a[redacted: LONG]b".to_owned()),
        (format!("a{}x", &long[..90_000]), format!("a{}x", &long[..90_000])),
    ] {
        let (out, _) = redact_pieces(&needles, text.as_bytes().chunks(997));
        assert!(out == expected.as_bytes());
    }
}

#[test]
fn well_known_credentials_are_taken_out() {
    let url = "abcdefghij0123456789ABCDEFGHIJ_-abcdefghij0123456789ABCDEFGHIJ";
    let plain = "abcdefghij0123456789ABCDEFGHIJabcdefghij0123456789";
    for credential in [
        GITHUB.to_owned(),
        format!("gho_{plain}"),
        format!("github_pat_{url}"),
        "glpat-abcdefghij0123456789".to_owned(),
        format!("sk-ant-api03-{url}"),
        format!("sk-proj-{url}"),
        "sk-0123456789abcdef0123456789abcdef".to_owned(),
        "AKIAIOSFODNN7EXAMPLE".to_owned(),
        "ASIAIOSFODNN7EXAMPLE".to_owned(),
        "AIzaSyA0123456789abcdefghijklmnopqrstuv".to_owned(),
        "xoxb-123456789012-123456789012-abcdefghijklmnop".to_owned(),
        format!("npm_{plain}"),
        format!("pypi-AgEIcHlwaS5vcmc{url}"),
        format!("sk_live_{plain}"),
        format!("rk_live_{plain}"),
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl".to_owned(),
    ] {
        for (before, after) in [
            ("", ""),
            ("token=", "\n"),
            ("\"", "\", "),
            ("https://me:", "@example.org/x"),
            ("\x1b[1;31m", "\x1b[0m"),
            ("\\n", "\\n"),
            ("q%3D", "&"),
        ] {
            let text = format!("{before}{credential}{after}");
            assert_eq!(redact(&[], &text), format!("{before}[redacted]{after}"));
        }
        assert_eq!(redact(&[], &format!("a{credential}")), format!("a{credential}"), "not within a word");
    }
}

#[test]
fn values_of_authorization_are_taken_out_and_its_name_stays() {
    for (text, expected) in [
        ("> Authorization: Bearer abcdefgh1234\r\n", "> Authorization: Bearer [redacted]\r\n"),
        ("authorization: basic dXNlcjpwYXNz\n", "authorization: basic [redacted]\n"),
        ("{\"Authorization\": \"Bearer abc.def-ghi\"}", "{\"Authorization\": \"Bearer [redacted]\"}"),
        ("'AUTHORIZATION'='Basic dXNlcjpwYXNz'", "'AUTHORIZATION'='Basic [redacted]'"),
        ("a Bearer instrument, Basic knowledge", "a Bearer instrument, Basic knowledge"),
        ("Authorization: Bearer $TOKEN", "Authorization: Bearer $TOKEN"),
    ] {
        assert_eq!(redact(&[], text), expected);
    }
    let text = "Authorization: Bearer hunter2hunter2";
    assert_eq!(redact(&[("KEY", "hunter2hunter2")], text), "Authorization: Bearer [redacted: KEY]");
}

#[test]
fn private_keys_are_taken_out_up_to_their_last_line() {
    let body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQ==";
    for label in ["PRIVATE KEY", "RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"] {
        for line in ["\n", "\r\n", "\\n"] {
            let body = body.replace('\n', line);
            let key = format!("-----BEGIN {label}-----{line}{body}{line}-----END {label}-----");
            let expected = format!("<[redacted]>{line}after - it");
            assert_eq!(redact(&[], &format!("<{key}>{line}after - it")), expected);
        }
    }
    // Cut off, or followed by what can't be of a key.
    assert_eq!(redact(&[], &format!("-----BEGIN PRIVATE KEY-----\n{body}")), "[redacted]");
    assert_eq!(redact(&[], &format!("-----BEGIN PRIVATE KEY-----\n{body}\n\"x")), "[redacted]\"x");
    for harmless in [
        "grep -e \"-----BEGIN PRIVATE KEY-----\" src",
        "-----BEGIN CERTIFICATE-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END CERTIFICATE-----\n",
        "-----BEGIN ",
        "----------------------------------------",
    ] {
        assert_eq!(redact(&[], harmless), harmless);
    }
}

#[test]
fn ordinary_text_is_left_alone() {
    for text in [
        "task-0123456789abcdef0123456789 disk-sk-0123456789abcdef0123456789",
        "sk-learn-contrib-some-very-long-package-name-without-any-number-in-it-at-all-really-none",
        "npm_config_registry npm_package_dependencies_something_or_other_that_is_long",
        "eyJhbGciOiJIUzI1NiJ9 eyJ.eyJ. AKIA AIza ghp_ github_pat_x xoxb- glpat-",
        "ASIAN and AKIAPARK, basic training, bearer bonds",
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
        "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
    ] {
        assert_eq!(redact(&[], text), text);
    }
}

#[test]
fn an_endless_credential_takes_no_memory() {
    let mut redactor = Redactor::new(needles(&[("KEY", "hunter2hunter2")]));
    let mut out = Vec::new();
    redactor.push(b"token: ", &mut |bytes| out.extend_from_slice(bytes));
    redactor.push(GITHUB.as_bytes(), &mut |bytes| out.extend_from_slice(bytes));
    for _ in 0..1000 {
        redactor.push(&[b'a'; 10_000], &mut |bytes| out.extend_from_slice(bytes));
        assert!(redactor.window.capacity() < 100_000);
    }
    redactor.push(b"!", &mut |bytes| out.extend_from_slice(bytes));
    assert_eq!(out, b"token: [redacted]!");
}

#[test]
fn a_flood_of_secrets_is_no_work() {
    let needles = needles(&[("KEY", "hunter2.")]);
    let flood = b"hunter2.".repeat(100_000);
    let (out, count) = redact_pieces(&needles, std::iter::once(&flood[..]));
    assert_eq!((out.len(), count), ("[redacted: KEY]".len() * 100_000, 100_000));
}

/// What is let go before more comes.
fn at_once(secrets: &[(&str, &str)], text: &str) -> String {
    let mut out = Vec::new();
    Redactor::new(needles(secrets)).push(text.as_bytes(), &mut |bytes| out.extend_from_slice(bytes));
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn only_the_beginning_of_a_secret_is_held_back() {
    let secrets = &[("KEY", "hunter2hunter2")];
    for prompt in
        ["Continue? [y/N] ", "Password: ", "Authorization: ", "Loading", "running tests", "$ ", "100%"]
    {
        assert_eq!(at_once(secrets, prompt), prompt);
    }
    assert_eq!(at_once(secrets, "ssh hunt"), "ssh ");
    assert_eq!(at_once(secrets, "a ghp_0123"), "a ");
}

#[test]
fn somebody_who_waits_sees_a_few_bytes_and_the_secret_is_recognised_all_the_same() {
    let mut redactor = Redactor::new(needles(&[("KEY", "hunter2hunter2")]));
    let mut out = Vec::new();
    for byte in b"g hunter2hunter2 " {
        redactor.push(&[*byte], &mut |bytes| out.extend_from_slice(bytes));
        redactor.flush_partial(&mut |bytes| out.extend_from_slice(bytes));
    }
    assert_eq!(String::from_utf8_lossy(&out), "g hun[redacted: KEY] ");
    out.clear();
    for byte in GITHUB.bytes().chain(*b" ") {
        redactor.push(&[byte], &mut |bytes| out.extend_from_slice(bytes));
        redactor.flush_partial(&mut |bytes| out.extend_from_slice(bytes));
    }
    assert_eq!(String::from_utf8_lossy(&out), "ghp_012[redacted] ");
}

/// Pieces of which streams are made that come close to what is looked for.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    const WORDS: &[&str] = &[
        "abcdefgh",
        "efghijkl",
        "fghi1234",
        "abcd",
        "aaaaaaaa",
        "aaaaaaaab",
        "line one\nline two",
        "line one\r\nline two",
        "ghp_",
        "0123456789abcdefABCDEF0123456789abcd",
        "sk-",
        "sk-ant-api03-",
        "eyJ",
        ".eyJ",
        "hbGciOiJIUz",
        ".",
        "-----BEGIN ",
        "RSA PRIVATE KEY-----",
        "-----END ",
        "-----",
        "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
        "\n",
        " ",
        "-",
        "Authorization: ",
        "Bearer ",
        "AKIA",
        "IOSFODNN7EXAMPLE",
        "\x1b[31m",
        "\\n",
        "%3D",
        "m",
        "=",
    ];
    let word = prop::sample::select(WORDS).prop_map(|word| word.as_bytes().to_vec());
    let part = (prop::sample::select(WORDS), any::<prop::sample::Index>())
        .prop_map(|(word, end)| word.as_bytes()[..end.index(word.len() + 1)].to_vec());
    prop_oneof![4 => word, 2 => part, 1 => prop::collection::vec(any::<u8>(), 0..12)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn pieces_do_not_matter_and_no_value_is_left(
        pieces in prop::collection::vec(piece(), 0..24),
        sizes in prop::collection::vec(1usize..40, 1..20),
    ) {
        let values =
            [("ONE", "abcdefgh"), ("TWO", "efghijkl"), ("THREE", "fghi1234"), ("A", "aaaaaaaa"), ("B", "aaaaaaaab"),
             ("LINES", "line one\nline two"), ("LIKE", "ghp_0123456789")];
        let needles = needles(&values);
        let stream = pieces.concat();
        let (whole, count) = redact_pieces(&needles, std::iter::once(&stream[..]));
        let mut rest = &stream[..];
        let mut cut = Vec::new();
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (one, others) = rest.split_at((*size).min(rest.len()));
            cut.push(one);
            rest = others;
        }
let (pieced, again) = redact_pieces(&needles, cut.into_iter());
        prop_assert_eq!((&whole, count), (&pieced, again));
        for (_, value) in values {
            prop_assert!(memchr::memmem::find(&whole, value.as_bytes()).is_none());
        }
        if count == 0 {
            prop_assert_eq!(whole, stream);
        }
    }
}
