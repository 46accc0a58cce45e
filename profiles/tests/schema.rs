//! What a profile may say, and what is said about one that says something else.

use std::path::Path;
use std::time::Duration;

use agency_profiles::profile::{
    Platform, Profile, ProfileCommand, ProfileError, ProfileName, ProfileNetwork, WhenClause, WhenCondition,
    WhenRule,
};
use agency_sandbox::egress::HostAllowlist;
use proptest::prelude::*;

fn parse(text: &str) -> Result<Profile, ProfileError> {
    Profile::parse(Path::new("dod/mine.yml"), text).map(|parsed| parsed.profile)
}

#[test]
fn the_specifications_own_example_is_a_profile() {
    let text = "name: node_strict\ndescription: \"Typecheck, lint, test, build\"\nenvironment: node\ncommands:\n  \
                - \"pnpm typecheck\"\n  - \"pnpm lint\"\n  - \"pnpm test\"\n  - \"pnpm build\"\n";
    let profile = parse(text).expect("a profile");
    let commands: Vec<_> = profile.commands.iter().map(|command| command.run.as_str()).collect();
    assert_eq!(commands, ["pnpm typecheck", "pnpm lint", "pnpm test", "pnpm build"]);
    assert_eq!(profile.environment.as_deref(), Some("node"));
    assert_eq!(
        (profile.platform, profile.network, profile.timeout),
        (Platform::Any, ProfileNetwork::None, None)
    );
}

#[test]
fn every_key_of_ours_is_read() {
    let text = "name: x\ndescription: d\nplatform: linux\ntimeout: 20m\nnetwork: [a.example:443, 10.0.0.1:80]\n\
                env: [TOKEN]\nmemory: 2GiB\ncommands:\n  - run: a\n    timeout: 1h30m\n    network: none\n    \
                when: [{script: [a, b]}, {file: x, not: {program: y}}]\n";
    let profile = parse(text).expect("a profile");
    assert_eq!(profile.platform, Platform::Linux);
    assert_eq!(profile.timeout, Some(Duration::from_secs(1200)));
    assert_eq!(
        profile.network,
        ProfileNetwork::Hosts(HostAllowlist::parse("a.example:443,10.0.0.1:80").expect("a list"))
    );
    assert_eq!((profile.env, profile.memory), (vec!["TOKEN".to_owned()], Some(2 << 30)));
    let command = &profile.commands[0];
    assert_eq!(
        (command.timeout, &command.network),
        (Some(Duration::from_secs(5400)), &Some(ProfileNetwork::None))
    );
    let not = WhenRule(vec![WhenClause(vec![WhenCondition::Program(vec!["y".into()])])]);
    let when = WhenRule(vec![
        WhenClause(vec![WhenCondition::Script(vec!["a".into(), "b".into()])]),
        WhenClause(vec![WhenCondition::File(vec!["x".into()]), WhenCondition::Not(not)]),
    ]);
    assert_eq!(command.when, when);
}

#[test]
fn what_is_wrong_is_named_with_its_file_line_and_field() {
    const HEAD: &str = "name: mine\ndescription: d\n";
    for (rest, line, field, words) in [
        ("", None, "commands", "is missing"),
        ("commands:\n", Some(3), "commands", "is missing"),
        ("commands: []\n", Some(3), "commands", "checks nothing"),
        ("commands: make\n", Some(3), "commands", "is text; write a list"),
        ("commands:\n  - a\n  - 5\n", Some(5), "commands[1]", "is a number"),
        ("commands:\n  - a\n  - ''\n", Some(5), "commands[1]", "is empty"),
        ("commands:\n  - a\n  - timeout: 5m\n", Some(5), "commands[1]", "has no `run`"),
        (
            "commands:\n  - a\n  - run: b\n    timeout: soon\n",
            Some(6),
            "commands[1].timeout",
            "not a duration",
        ),
        ("commands:\n  - run: b\n    timeout: 90\n", Some(5), "commands[0].timeout", "write for example 90s"),
        ("commands:\n  - run: b\n    network: some\n", Some(5), "commands[0].network", "HOST:PORT"),
        ("commands: [a]\nnetwork: [a.example]\n", Some(4), "network", "the port is missing"),
        ("commands: [a]\nnetwork: []\n", Some(4), "network", "empty list"),
        ("platform: beos\ncommands: [a]\n", Some(3), "platform", "known are any, linux"),
        ("timeout: 0s\ncommands: [a]\n", Some(3), "timeout", "is zero"),
        ("memory: lots\ncommands: [a]\n", Some(3), "memory", "not a size"),
        ("env: [A=b]\ncommands: [a]\n", Some(3), "env", "without their values"),
        ("env: {A: b}\ncommands: [a]\n", Some(3), "env", "is a map"),
        ("commands:\n- run: a\n  when: {fiel: x}\n", Some(5), "commands[0].when", "did you mean `file`?"),
        (
            "commands:\n- run: a\n  when: {file: ../x}\n",
            Some(5),
            "commands[0].when.file",
            "leaves the workspace",
        ),
        ("commands:\n- run: a\n  when: {file: a*/x}\n", Some(5), "commands[0].when.file", "last part"),
        ("commands:\n- run: a\n  when: always\n", Some(5), "commands[0].when", "write a map"),
        (
            "commands:\n- run: a\n  when: {program: /bin/x}\n",
            Some(5),
            "commands[0].when.program",
            "name of a program",
        ),
        (
            "image: alpine:3\ncommands:\n- run: a\n  when: {program: ruff}\n",
            Some(6),
            "commands[0].when.program",
            "asks for a program of this host, and the commands find those of the image `alpine:3`; leave it out",
        ),
        (
            "commands:\n- run: a\n  when: {file: x, not: [{file: y}, {program: ruff}]}\nimage: alpine\n",
            Some(5),
            "commands[0].when.not.program",
            "the image `alpine`",
        ),
    ] {
        let error = parse(&format!("{HEAD}{rest}")).expect_err(rest);
        assert_eq!(error.field(), Some(field), "{rest}: {error}");
        assert_eq!(error.location().line, line, "{rest}: {error}");
        let text = error.to_string();
        assert!(text.starts_with("dod/mine.yml") && text.contains(words), "{rest}: {text}");
    }
    let error = parse("name: ../up\ndescription: d\ncommands: [a]").expect_err("refused").to_string();
    assert!(error.starts_with("dod/mine.yml:1: `name` is `../up`:"), "{error}");
    let error = parse("description: d\ncommands: [a]").expect_err("refused").to_string();
    assert_eq!(error, "dod/mine.yml: `name` is missing");
}

#[test]
fn what_is_no_yaml_or_no_map_is_said_to_be_none() {
    let error = parse("name: x\ncommands:\n  - a\n b: [\n").expect_err("refused");
    assert!(matches!(error, ProfileError::Syntax { .. }), "{error}");
    assert!(error.location().line.is_some_and(|line| line >= 3), "{error}");
    for text in ["", "- a\n", "text", "!tag {a: b}"] {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.starts_with("dod/mine.yml: a profile is a map"), "{error}");
    }
    let twice = parse("name: x\nname: y\ndescription: d\ncommands: [a]").expect_err("refused");
    assert!(matches!(twice, ProfileError::Syntax { .. }), "{twice}");
    // Nine levels of ten references each: a billion commands.
    let mut bomb = "a: &a0 [x]\n".to_owned();
    for level in 1..10 {
        let references = format!("*a{}, ", level - 1).repeat(10);
        bomb.push_str(&format!("b{level}: &a{level} [{references}]\n"));
    }
    assert!(parse(&bomb).is_err());
}

#[test]
fn an_unknown_key_is_ignored_and_noted_with_the_nearest_known_one() {
    let text = "name: x\ndescription: d\ntiemout: 5m\nowner: me\ncommands:\n  - run: a\n    netwrok: full\n";
    let parsed = Profile::parse(Path::new("x.yml"), text).expect("a profile");
    assert_eq!(parsed.profile.timeout, None);
    assert_eq!(parsed.profile.commands, [ProfileCommand::unconditional("a")]);
    let [first, second, third] = &parsed.notes[..] else { panic!("{:?}", parsed.notes) };
    assert_eq!(first, "x.yml:3: `tiemout` is not known and is ignored; did you mean `timeout`?");
    assert_eq!(second, "x.yml:4: `owner` is not known and is ignored");
    assert!(
        third.starts_with("x.yml:7: `commands[0].netwrok`") && third.ends_with("did you mean `network`?"),
        "{third}"
    );
}

fn network() -> impl Strategy<Value = ProfileNetwork> {
    let hosts = prop::collection::vec(("[a-z]{1,8}\\.example", 1u16..), 1..4);
    let list = hosts.prop_map(|hosts| {
        let hosts: Vec<String> = hosts.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        ProfileNetwork::Hosts(HostAllowlist::parse(&hosts.join(",")).expect("a list"))
    });
    prop_oneof![Just(ProfileNetwork::None), Just(ProfileNetwork::Full), list]
}

/// Text that is something, with whatever YAML might take for its own.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~äß✓\\n\\t#:&*!|>'\"{}%@`-]{1,40}",
        Just("true".into()),
        Just("12".into()),
        Just("~".into()),
        Just("- a: b\n  c".into())
    ]
    .prop_filter("not empty", |text: &String| !text.trim().is_empty())
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(text(), 1..3)
}

fn when() -> impl Strategy<Value = WhenRule> {
    let file = prop::collection::vec("[a-z]{1,5}/[a-z*.]{1,5}x", 1..3);
    let condition = prop_oneof![
        file.prop_map(WhenCondition::File),
        texts().prop_map(WhenCondition::Script),
        texts().prop_map(WhenCondition::Requires),
        texts().prop_map(WhenCondition::Pyproject),
        texts().prop_map(WhenCondition::Target),
        prop::collection::vec("[a-z]{1,6}", 1..3).prop_map(WhenCondition::Program),
    ];
    // A key is there once; which one comes first must not matter to what is read back.
    let clause = |condition: BoxedStrategy<WhenCondition>| condition.prop_map(|one| WhenClause(vec![one]));
    let plain = prop::collection::vec(clause(condition.clone().boxed()), 0..3).prop_map(WhenRule);
    let not = prop::collection::vec(clause(condition.boxed()), 1..3)
        .prop_map(|clauses| WhenCondition::Not(WhenRule(clauses)));
    (plain, prop::option::of(not)).prop_map(|(mut when, not)| {
        when.0.extend(not.map(|not| WhenClause(vec![WhenCondition::Target(vec!["x".into()]), not])));
        when
    })
}

/// Whether it asks what is on this host.
fn asks_the_host(when: &WhenRule) -> bool {
    when.0.iter().flat_map(|clause| &clause.0).any(|condition| match condition {
        WhenCondition::Program(_) => true,
        WhenCondition::Not(when) => asks_the_host(when),
        _ => false,
    })
}

fn duration() -> impl Strategy<Value = Duration> {
    (1u64..604_800_000).prop_map(Duration::from_millis)
}

fn command() -> impl Strategy<Value = ProfileCommand> {
    (text(), prop::option::of(duration()), prop::option::of(network()), when())
        .prop_map(|(run, timeout, network, when)| ProfileCommand { run, timeout, network, when })
}

prop_compose! {
    fn profile()(
        name in "[A-Za-z0-9_][A-Za-z0-9_-]{0,20}",
        description in text(),
        environment in prop::option::of(text()),
        platform in prop::sample::select(&Platform::ALL[..]),
        commands in prop::collection::vec(command(), 1..4),
        timeout in prop::option::of(duration()),
        network in network(),
        env in prop::collection::vec("[A-Z_][A-Z0-9_]{0,8}", 0..3),
        memory in prop::option::of(1u64..),
        caches in prop::collection::vec(prop::sample::select(&["cargo", "npm", "pip"][..]), 0..3),
        image in prop::option::of("[a-z][a-z0-9]{0,8}(/[a-z]{1,5})?(:[a-z0-9]{1,4})?"),
    ) -> Profile {
        let name = ProfileName::parse(&name).expect("a name");
        let caches = caches.into_iter().map(str::to_owned).collect();
        let image = image.filter(|_| !commands.iter().any(|command| asks_the_host(&command.when)));
        Profile { name, description, environment, platform, commands, timeout, network, env, memory, image, caches }
    }
}

proptest! {
    #[test]
    fn any_profile_that_is_written_is_read_back(profile in profile()) {
        let text = profile.to_yaml().expect("YAML");
        let parsed = Profile::parse(Path::new("x.yml"), &text);
        let parsed = parsed.map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(&parsed.profile, &profile, "{}", text);
        prop_assert!(parsed.notes.is_empty());
    }

    #[test]
    fn no_text_makes_reading_panic(text in "\\PC*", junk in prop::collection::vec("(name|commands|when|- |run|: |\\n|  |\\[|\\{|a)", 0..30)) {
        let _ = parse(&text);
        let _ = parse(&junk.concat());
    }
}
