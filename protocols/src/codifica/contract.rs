//! §3.1: `codifica.json`, read strictly. A missing or wrong value is an error; nothing is guessed.

use globset::{GlobBuilder, GlobMatcher};
use serde_json::{Map, Value};

use crate::finding::Finding;
use crate::names::AgentName;
use crate::scope_glob;
use crate::store::tree::{RepoTree, RepoTreeError};

/// The file that makes a repository one of this protocol.
pub const MARKER: &str = "codifica.json";

/// How many folders below its fixed part a pattern of state files is searched.
const DEEPEST: usize = 8;

/// What a repository's `codifica.json` says.
#[derive(Debug, Clone)]
pub struct Contract {
    pub text: String,
    pub version: CodificaVersion,
    /// The specification that agents must read.
    pub spec: String,
    pub state: StateLocation,
    /// The folder of evidence, without a slash at its end.
    pub assets: String,
    pub rules: ContractRules,
    /// Unknown keys; they are kept, and mean nothing.
    pub unknown: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CodificaVersion {
    V0_1,
    V0_2,
}

impl CodificaVersion {
    pub const ALL: [Self; 2] = [Self::V0_1, Self::V0_2];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V0_1 => "0.1",
            Self::V0_2 => "0.2",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix("codifica/").unwrap_or(text);
        Self::ALL.into_iter().find(|version| version.as_str() == text.strip_prefix('v').unwrap_or(text))
    }
}

impl std::fmt::Display for CodificaVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// §3.2: where the state files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateLocation {
    Path(String),
    Glob(String),
    Paths(Vec<String>),
}

/// The rules object, with its defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContractRules {
    /// Empty means all agents.
    pub allowed_agents: Vec<AgentName>,
    pub include: Vec<String>,
    pub exclude: Vec<String>,
    pub custom_types: Vec<String>,
    pub branch_pattern: Option<String>,
    pub most_at_once: Option<usize>,
    pub stale_hours: u64,
}

impl Default for ContractRules {
    fn default() -> Self {
        Self {
            allowed_agents: Vec::new(),
            include: vec!["**".to_owned()],
            exclude: Vec::new(),
            custom_types: Vec::new(),
            branch_pattern: None,
            most_at_once: None,
            stale_hours: 24,
        }
    }
}

/// Why `codifica.json` can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ContractError {
    #[error("there is no {MARKER}")]
    Missing,
    #[error(transparent)]
    Tree(#[from] RepoTreeError),
    #[error("{MARKER}:{line}: it is not JSON: {reason} (§3.1)")]
    Json { line: usize, reason: String },
    #[error("{MARKER}: {reason} (§3.1)")]
    Field { reason: String },
    #[error("{MARKER}: `spec` names {path}, and there is no such file (§3.1)")]
    NoSpec { path: String },
    #[error("{MARKER}: `state` names {at}, and there is no such file (§2)")]
    NoState { at: String },
}

fn wrong(reason: impl Into<String>) -> ContractError {
    ContractError::Field { reason: reason.into() }
}

impl Contract {
    pub fn read(tree: &RepoTree) -> Result<Self, ContractError> {
        let text = tree.read_text(MARKER)?.ok_or(ContractError::Missing)?;
        let contract = Self::parse(&text)?;
        if !tree.is_file(&contract.spec) {
            return Err(ContractError::NoSpec { path: contract.spec });
        }
        Ok(contract)
    }

    pub fn parse(text: &str) -> Result<Self, ContractError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let value: Value = serde_json::from_str(text)
            .map_err(|error| ContractError::Json { line: error.line(), reason: error.to_string() })?;
        let Value::Object(fields) = value else { return Err(wrong("it must be an object")) };
        match required(&fields, "protocol")? {
            "codifica" => {}
            other => return Err(wrong(format!("`protocol` is `{other}`; it must be `codifica`"))),
        }
        let version = required(&fields, "version")?;
        let version = CodificaVersion::parse(version)
            .ok_or_else(|| wrong(format!("`version` is `{version}`; 0.1 and 0.2 are known here")))?;
        let spec = path("spec", required(&fields, "spec")?)?;
        let assets = match fields.get("assets") {
            None => "assets".to_owned(),
            Some(Value::String(folder)) => path("assets", folder.trim_end_matches('/'))?,
            Some(_) => return Err(wrong("`assets` must be a path")),
        };
        let known = ["protocol", "version", "spec", "state", "assets", "rules"];
        let unknown = fields.keys().filter(|key| !known.contains(&key.as_str())).cloned().collect();
        let (state, rules) = (state(&fields)?, rules(fields.get("rules"))?);
        Ok(Self { text: text.to_owned(), version, spec, state, assets, rules, unknown })
    }

    /// The existing state files, in the order in which they are named. A missing file of a list is a finding; if none
    /// exists, that is an error.
    pub fn state_files(&self, tree: &RepoTree) -> Result<(Vec<String>, Vec<Finding>), ContractError> {
        // A link, or another entry that is no file, counts as existing; reading it reports the error.
        let is_there = |path: &String| tree.path().join(path).symlink_metadata().is_ok();
        let (named, gone): (Vec<String>, Vec<String>) = match &self.state {
            StateLocation::Path(path) => vec![path.clone()].into_iter().partition(is_there),
            StateLocation::Paths(paths) => paths.iter().cloned().partition(is_there),
            StateLocation::Glob(glob) => (matching(tree, glob)?, Vec::new()),
        };
        if named.is_empty() {
            return Err(ContractError::NoState { at: self.state.to_string() });
        }
        let finding = |path: String| {
            let message = format!("`state` names {path}, and there is no such file");
            Finding::error(MARKER, None, "3.2", message).of_field("state")
        };
        Ok((named, gone.into_iter().map(finding).collect()))
    }

    /// Whether a path could be a state file.
    pub fn is_state(&self, path: &str) -> bool {
        match &self.state {
            StateLocation::Path(one) => one == path,
            StateLocation::Paths(all) => all.iter().any(|one| one == path),
            StateLocation::Glob(glob) => matcher(glob).is_some_and(|matcher| matcher.is_match(path)),
        }
    }

    pub fn allows(&self, agent: &AgentName) -> bool {
        self.rules.allowed_agents.is_empty() || self.rules.allowed_agents.contains(agent)
    }
}

impl std::fmt::Display for StateLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path(path) | Self::Glob(path) => f.write_str(path),
            Self::Paths(paths) => f.write_str(&paths.join(", ")),
        }
    }
}

fn required<'f>(fields: &'f Map<String, Value>, key: &str) -> Result<&'f str, ContractError> {
    match fields.get(key) {
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(text),
        Some(_) => Err(wrong(format!("`{key}` must be a text"))),
        None => Err(wrong(format!("`{key}` is missing"))),
    }
}

/// A path that stays in the repository.
fn path(key: &str, text: &str) -> Result<String, ContractError> {
    scope_glob::check(text).map_err(|error| wrong(format!("`{key}`: {error}")))?;
    if text.split('/').any(|part| part.eq_ignore_ascii_case(".git")) {
        return Err(wrong(format!("`{key}` is `{text}`, which is git's own")));
    }
    Ok(text.strip_prefix("./").unwrap_or(text).to_owned())
}

fn is_glob(text: &str) -> bool {
    text.contains(['*', '?', '[', '{'])
}

fn state(fields: &Map<String, Value>) -> Result<StateLocation, ContractError> {
    match fields.get("state") {
        Some(Value::String(text)) if is_glob(text) => Ok(StateLocation::Glob(path("state", text)?)),
        Some(Value::String(text)) => Ok(StateLocation::Path(path("state", text)?)),
        Some(Value::Array(items)) if !items.is_empty() => {
            let one = |item: &Value| match item {
                Value::String(text) if !is_glob(text) => path("state", text),
                Value::String(text) => {
                    Err(wrong(format!("`state` is a list of paths, and `{text}` is a glob")))
                }
                _ => Err(wrong("`state` must be a path, a glob, or a list of paths")),
            };
            Ok(StateLocation::Paths(items.iter().map(one).collect::<Result<_, _>>()?))
        }
        Some(_) => Err(wrong("`state` must be a path, a glob, or a list of paths")),
        None => Err(wrong("`state` is missing")),
    }
}

fn rules(value: Option<&Value>) -> Result<ContractRules, ContractError> {
    let fields = match value {
        None => return Ok(ContractRules::default()),
        Some(Value::String(text)) => {
            mode(text)?;
            return Ok(ContractRules::default());
        }
        Some(Value::Object(fields)) => fields,
        Some(_) => return Err(wrong("`rules` must be a text or an object")),
    };
    match fields.get("mode") {
        None => {}
        Some(Value::String(text)) => mode(text)?,
        Some(_) => return Err(wrong("`rules.mode` must be `strict` or `permissive`")),
    }
    let mut rules = ContractRules::default();
    let agent = |text: String| {
        let name = text.strip_prefix("agent:").unwrap_or(&text);
        AgentName::parse(name).map_err(|error| wrong(format!("`rules.allowed_agents`: {error}")))
    };
    let agents = texts(fields, "allowed_agents", "rules.allowed_agents")?.unwrap_or_default();
    rules.allowed_agents = agents.into_iter().map(agent).collect::<Result<_, _>>()?;
    match fields.get("file_scope") {
        None => {}
        Some(Value::Object(scope)) => {
            if let Some(include) = texts(scope, "include", "rules.file_scope.include")? {
                rules.include = include;
            }
            rules.exclude = texts(scope, "exclude", "rules.file_scope.exclude")?.unwrap_or_default();
        }
        Some(_) => return Err(wrong("`rules.file_scope` must be an object")),
    }
    for (key, globs) in [("include", &rules.include), ("exclude", &rules.exclude)] {
        for glob in globs {
            scope_glob::check(glob).map_err(|error| wrong(format!("`rules.file_scope.{key}`: {error}")))?;
        }
    }
    rules.custom_types = texts(fields, "custom_types", "rules.custom_types")?.unwrap_or_default();
    rules.branch_pattern = match fields.get("branch_pattern") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(branch_pattern(text)?),
        Some(_) => return Err(wrong("`rules.branch_pattern` must be a text")),
    };
    let number = |key: &str| match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().filter(|number| *number > 0) {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(format!("`rules.{key}` must be a number above zero"))),
        },
    };
    let most = number("max_concurrent_tasks_per_agent")?;
    rules.most_at_once = most.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
    rules.stale_hours = number("stale_claim_hours")?.unwrap_or(rules.stale_hours);
    Ok(rules)
}

fn mode(text: &str) -> Result<(), ContractError> {
    match text {
        "strict" | "permissive" => Ok(()),
        other => Err(wrong(format!("`rules.mode` is `{other}`; it must be `strict` or `permissive`"))),
    }
}

fn texts(fields: &Map<String, Value>, key: &str, shown: &str) -> Result<Option<Vec<String>>, ContractError> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(items)) => {
            let text = |item: &Value| item.as_str().map(str::to_owned);
            let texts = items.iter().map(text).collect::<Option<_>>();
            texts.map(Some).ok_or_else(|| wrong(format!("`{shown}` must be a list of strings")))
        }
        Some(_) => Err(wrong(format!("`{shown}` must be a list of strings"))),
    }
}

/// Two tasks must not get one branch.
fn branch_pattern(text: &str) -> Result<String, ContractError> {
    let mut rest = text.to_owned();
    for variable in ["{type}", "{id}", "{slug}"] {
        rest = rest.replace(variable, "x");
    }
    let odd = rest.contains(['{', '}', ' ', '~', '^', ':', '?', '*', '[', '\\'])
        || rest.contains("..")
        || rest.starts_with(['/', '-'])
        || rest.ends_with(['/', '.']);
    match (odd, text.contains("{id}")) {
        (true, _) => Err(wrong(format!(
            "`rules.branch_pattern` is `{text}`; it may hold {{type}}, {{id}}, {{slug}} and what a branch's name can"
        ))),
        (false, false) => Err(wrong(format!(
            "`rules.branch_pattern` is `{text}`, which names one branch for all: use {{id}}"
        ))),
        (false, true) => Ok(text.to_owned()),
    }
}

fn matcher(glob: &str) -> Option<GlobMatcher> {
    let built = GlobBuilder::new(glob).literal_separator(true).backslash_escape(true).build();
    built.ok().map(|glob| glob.compile_matcher())
}

/// Every file that a pattern matches, in the order of paths.
fn matching(tree: &RepoTree, glob: &str) -> Result<Vec<String>, RepoTreeError> {
    let Some(matcher) = matcher(glob) else { return Ok(Vec::new()) };
    let fixed = glob.split('/').take_while(|part| !is_glob(part)).collect::<Vec<_>>().join("/");
    let depth = if glob.contains("**") { DEEPEST } else { glob.split('/').count() };
    let mut found = Vec::new();
    let mut waiting = vec![(fixed, 0)];
    while let Some((folder, level)) = waiting.pop() {
        let name = if folder.is_empty() { "." } else { &folder };
        for entry in tree.list(name)? {
            let path = match folder.is_empty() {
                true => entry.name,
                false => format!("{folder}/{}", entry.name),
            };
            if entry.is_folder {
                if level < depth && path != ".git" {
                    waiting.push((path, level + 1));
                }
            } else if matcher.is_match(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(fields: &str) -> Result<Contract, String> {
        let text = format!("{{\"protocol\":\"codifica\",\"version\":\"0.2\",\"spec\":\"s.md\"{fields}}}");
        Contract::parse(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn the_minimal_and_the_extended_form_are_read() {
        let minimal = with(r#","state":"work.md","assets":"assets/","rules":"strict""#).expect("read");
        assert_eq!(
            (minimal.state, minimal.assets.as_str()),
            (StateLocation::Path("work.md".into()), "assets")
        );
        assert_eq!(minimal.rules, ContractRules::default());
        let extended = with(
            r#","state":"work/*.md","rules":{"mode":"strict","allowed_agents":["agent:builder","writer"],
            "file_scope":{"include":["src/**"],"exclude":[".env","*.key"]},"custom_types":["deploy"],
            "branch_pattern":"{type}/{id}-{slug}","max_concurrent_tasks_per_agent":1,"stale_claim_hours":12}"#,
        );
        let rules = extended.expect("read").rules;
        assert_eq!(
            rules.allowed_agents.iter().map(AgentName::as_str).collect::<Vec<_>>(),
            ["builder", "writer"]
        );
        assert_eq!((rules.most_at_once, rules.stale_hours), (Some(1), 12));
        assert_eq!((rules.include.len(), rules.exclude.len()), (1, 2));
    }

    #[test]
    fn rules_without_a_mode_have_the_default_one() {
        assert_eq!(
            with(r#","state":"work.md","rules":{"allowed_agents":[]}"#).map(|one| one.rules),
            Ok(ContractRules::default())
        );
    }

    #[test]
    fn whatever_is_wrong_is_named_and_nothing_is_guessed() {
        for (fields, named) in [
            ("", "`state` is missing"),
            (r#","state":7"#, "`state` must be"),
            (r#","state":[]"#, "`state` must be"),
            (r#","state":["a.md","b/*.md"]"#, "is a glob"),
            (r#","state":"../work.md""#, "escapes the repository"),
            (r#","state":".git/config""#, "git's own"),
            (r#","state":"w.md","assets":".GIT/""#, "git's own"),
            (r#","state":"w.md","rules":"loose""#, "`rules.mode` is `loose`"),
            (r#","state":"w.md","rules":7"#, "`rules` must be"),
            (r#","state":"w.md","rules":{"file_scope":{"exclude":["!(a)"]}}"#, "extended glob"),
            (r#","state":"w.md","rules":{"file_scope":{"include":["/etc/**"]}}"#, "escapes the repository"),
            (r#","state":"w.md","rules":{"allowed_agents":["../x"]}"#, "is no agent name"),
            (r#","state":"w.md","rules":{"max_concurrent_tasks_per_agent":0}"#, "above zero"),
            (r#","state":"w.md","rules":{"stale_claim_hours":"day"}"#, "above zero"),
            (r#","state":"w.md","rules":{"branch_pattern":"{type}"}"#, "use {id}"),
            (r#","state":"w.md","rules":{"branch_pattern":"{id}/{who}"}"#, "it may hold"),
        ] {
            let said = with(fields).expect_err(fields);
            assert!(said.contains(named), "{fields}: {said}");
            assert!(said.contains("(§3.1)"), "{said}");
        }
        for (text, named) in [
            ("{", "codifica.json:1: it is not JSON"),
            ("[]", "it must be an object"),
            (r#"{"protocol":"other"}"#, "`protocol` is `other`"),
            (r#"{"protocol":"codifica","version":"9"}"#, "`version` is `9`"),
        ] {
            let said = Contract::parse(text).expect_err(text).to_string();
            assert!(said.contains(named), "{text}: {said}");
        }
    }

    #[test]
    fn state_files_are_found_by_path_list_and_pattern() {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = RepoTree::open(folder.path()).expect("a tree");
        for name in ["work.md", "work/a.md", "work/b.md", "work/deep/c.md", "work/x.txt"] {
            tree.create(name, b"").expect("made");
        }
        let files = |state: &str| {
            let contract = with(&format!(",\"state\":{state}")).expect("read");
            contract.state_files(&tree).map(|(files, gone)| (files.join(" "), gone.len()))
        };
        assert_eq!(files("\"work.md\"").expect("found"), ("work.md".into(), 0));
        assert_eq!(files("\"work/*.md\"").expect("found"), ("work/a.md work/b.md".into(), 0));
        assert_eq!(files("\"**/*.md\"").expect("found").0, "work.md work/a.md work/b.md work/deep/c.md");
        assert_eq!(
            files("[\"work/b.md\",\"gone.md\",\"work.md\"]").expect("found"),
            ("work/b.md work.md".into(), 1)
        );
        assert!(matches!(files("\"gone.md\""), Err(ContractError::NoState { .. })));
        assert!(matches!(files("\"none/*.md\""), Err(ContractError::NoState { .. })));
    }
}
