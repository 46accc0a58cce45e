//! §5: the manifest, `agency.json`.

use std::fmt;

use jiff::tz::TimeZone;
use serde_json::Value;

use super::layout;
use crate::names::AgentName;
use crate::store::tree::{RepoTree, RepoTreeError};
use crate::timestamp;

/// The major version of the protocol that we understand. A newer minor version is read, and its unknown fields are
/// kept.
pub const MAJOR: u32 = 1;

/// The version that `init` writes.
pub const CURRENT: ProtocolVersion = ProtocolVersion { major: MAJOR, minor: 0 };

/// `agency/1.0`
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProtocolVersion {
    pub major: u32,
    pub minor: u32,
}

impl ProtocolVersion {
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.strip_prefix("agency/")?.split_once('.')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "agency/{}.{}", self.major, self.minor)
    }
}

/// §5.1
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdStrategy {
    Sequential,
    Ulid,
}

/// §16
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LicenseMode {
    Lexaplus,
    Community,
    Dual,
}

impl LicenseMode {
    pub const ALL: [LicenseMode; 3] = [LicenseMode::Lexaplus, LicenseMode::Community, LicenseMode::Dual];

    pub const fn as_str(self) -> &'static str {
        match self {
            LicenseMode::Lexaplus => "lexaplus",
            LicenseMode::Community => "community",
            LicenseMode::Dual => "dual",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == text)
    }
}

#[derive(Debug, Clone)]
pub struct BoardManifest {
    /// Where it was found.
    pub path: &'static str,
    pub text: String,
    pub version: ProtocolVersion,
    pub project: String,
    pub license_mode: Option<LicenseMode>,
    pub orchestrator: Option<String>,
    pub builders: Vec<AgentName>,
    pub strategy: IdStrategy,
    pub dod_profile: String,
    pub zone: TimeZone,
}

#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("there is no {} here", layout::MANIFEST)]
    Missing,
    #[error(transparent)]
    Tree(#[from] RepoTreeError),
    #[error("{path}:{line}: it is not valid JSON: {reason}")]
    Syntax { path: &'static str, line: usize, reason: String },
    #[error("{path}:{line}: `{field}` {reason} (§5)")]
    Field { path: &'static str, line: usize, field: &'static str, reason: String },
    #[error(
        "{path}: it is of protocol {found}, and this agency understands agency/{MAJOR}.x; a newer agency is needed (§17)"
    )]
    Newer { path: &'static str, found: ProtocolVersion },
}

impl BoardManifest {
    pub fn read(tree: &RepoTree) -> Result<Self, ManifestError> {
        for path in [layout::MANIFEST, layout::OLDER_MANIFEST] {
            if let Some(text) = tree.read_text(path)? {
                return Self::parse(path, text);
            }
        }
        Err(ManifestError::Missing)
    }

    pub fn parse(path: &'static str, text: String) -> Result<Self, ManifestError> {
        let json: Value = serde_json::from_str(text.trim_start_matches('\u{feff}')).map_err(|error| {
            let reason = error.to_string();
            let reason = reason.split(" at line ").next().unwrap_or(&reason).to_owned();
            ManifestError::Syntax { path, line: error.line(), reason }
        })?;
        let fields = ManifestFields { path, text: &text, json: &json };
        let version = fields.required("protocol")?;
        let version = ProtocolVersion::parse(version).ok_or_else(|| {
            fields.wrong("protocol", format!("is `{version}`; it must be like `{CURRENT}`"))
        })?;
        if version.major > MAJOR {
            return Err(ManifestError::Newer { path, found: version });
        }
        let license_mode = match fields.text("license_mode")? {
            None => None,
            Some(mode) => Some(LicenseMode::parse(mode).ok_or_else(|| {
                fields.wrong("license_mode", format!("is `{mode}`; it must be lexaplus, community or dual"))
            })?),
        };
        let strategy = match fields.text("task_id_strategy")? {
            None | Some("sequential") => IdStrategy::Sequential,
            Some("ulid") => IdStrategy::Ulid,
            Some(other) => {
                let reason = format!("is `{other}`; it must be sequential or ulid");
                return Err(fields.wrong("task_id_strategy", reason));
            }
        };
        let defaults = json.get("defaults").unwrap_or(&Value::Null);
        let zone = match defaults.get("timezone").and_then(Value::as_str) {
            None => TimeZone::system(),
            Some(name) => timestamp::zone(name).ok_or_else(|| {
                fields
                    .wrong("timezone", format!("is `{name}`, which is no time zone; `Europe/Zurich` is one"))
            })?,
        };
        let builders = match json.get("builders") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(list)) => list
                .iter()
                .map(|name| {
                    let name = name
                        .as_str()
                        .ok_or_else(|| fields.wrong("builders", "must hold names".to_owned()))?;
                    AgentName::parse(name)
                        .map_err(|error| fields.wrong("builders", format!("holds a wrong name: {error}")))
                })
                .collect::<Result<_, _>>()?,
            Some(_) => return Err(fields.wrong("builders", "must be a list of names".to_owned())),
        };
        let dod_profile = defaults.get("dod_profile").and_then(Value::as_str).unwrap_or("auto").to_owned();
        Ok(Self {
            path,
            version,
            project: fields.text("project")?.unwrap_or_default().to_owned(),
            license_mode,
            orchestrator: fields.text("orchestrator")?.map(str::to_owned),
            builders,
            strategy,
            dod_profile,
            zone,
            text,
        })
    }

    /// The license mode generated files name.
    pub fn license(&self) -> LicenseMode {
        self.license_mode.unwrap_or(LicenseMode::Lexaplus)
    }
}

struct ManifestFields<'a> {
    path: &'static str,
    text: &'a str,
    json: &'a Value,
}

impl ManifestFields<'_> {
    fn text(&self, field: &'static str) -> Result<Option<&str>, ManifestError> {
        match self.json.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(field, "must be text".to_owned())),
        }
    }

    fn required(&self, field: &'static str) -> Result<&str, ManifestError> {
        self.text(field)?.ok_or_else(|| self.wrong(field, "is missing".to_owned()))
    }

    fn wrong(&self, field: &'static str, reason: String) -> ManifestError {
        let quoted = format!("\"{field}\"");
        let line = self.text.lines().position(|line| line.contains(&quoted)).map_or(1, |index| index + 1);
        ManifestError::Field { path: self.path, line, field, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<BoardManifest, ManifestError> {
        BoardManifest::parse(layout::MANIFEST, text.to_owned())
    }

    #[test]
    fn a_newer_minor_version_is_read_and_a_newer_major_is_not() {
        assert_eq!(parse(r#"{"protocol":"agency/1.9","novel":1}"#).expect("read").version.minor, 9);
        let newer = parse(r#"{"protocol":"agency/2.0"}"#).expect_err("refused");
        assert!(matches!(newer, ManifestError::Newer { .. }), "{newer}");
    }

    #[test]
    fn mistakes_are_told_with_line_and_field() {
        for (text, expected) in [
            ("{\n", "agency.json:2: it is not valid JSON"),
            ("{\"project\":\"x\"}", "agency.json:1: `protocol` is missing"),
            ("{\"protocol\":\"1.0\"}", "`protocol` is `1.0`"),
            (
                "{\"protocol\":\"agency/1.0\",\n\"license_mode\":\"free\"}",
                "agency.json:2: `license_mode` is `free`",
            ),
            (
                "{\"protocol\":\"agency/1.0\",\n\"defaults\":{\n\"timezone\":\"Mars\"}}",
                "agency.json:3: `timezone` is `Mars`",
            ),
            ("{\"protocol\":\"agency/1.0\",\"builders\":[\"../x\"]}", "`builders` holds a wrong name"),
            (
                "{\"protocol\":\"agency/1.0\",\"task_id_strategy\":\"random\"}",
                "`task_id_strategy` is `random`",
            ),
        ] {
            let error = parse(text).expect_err("refused").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
