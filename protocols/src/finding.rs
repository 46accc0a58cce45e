//! Findings: what is wrong with a file, with file, line and section, so that a person can repair it.

use std::fmt;

use serde::Serialize;

/// One violation of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// Relative to the repository.
    pub file: String,
    pub line: Option<usize>,
    /// The part of the specification, e.g. `6.2`.
    pub section: &'static str,
    pub severity: Severity,
    /// The field at fault, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file, or the repository, does not comply.
    Error,
    /// The file complies, but a person should know about this.
    Warning,
}

impl Finding {
    pub fn error(file: &str, line: Option<usize>, section: &'static str, message: impl Into<String>) -> Self {
        let (file, message) = (file.to_owned(), message.into());
        Self { file, line, section, severity: Severity::Error, field: None, message }
    }

    pub fn warning(
        file: &str,
        line: Option<usize>,
        section: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, ..Self::error(file, line, section, message) }
    }

    pub fn of_field(mut self, field: &str) -> Self {
        self.field = Some(field.to_owned());
        self
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// `file:line: message (§section)`, as compilers do it, so that editors can jump there.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {} (§{})", self.message, self.section)
    }
}
