//! §12: from version 0.1 to 0.2. Every new field is optional and old tasks stay valid, so nothing but the version in
//! `codifica.json` changes.

use super::Codifica;
use super::contract::{CodificaVersion, MARKER};
use crate::board::BoardError;
use crate::store::{BoardCommit, Effects, FileEdit};

impl Codifica {
    /// The repository in another version. The one it has already is no change.
    pub fn migrate(&self, to: CodificaVersion) -> Result<Effects, BoardError> {
        let from = self.contract.version;
        let mut effects = Effects::none();
        if to == from {
            return Ok(effects);
        }
        if to < from {
            return Err(BoardError::refused(format!("there is no way back from {from} to {to} (§12)")));
        }
        let old = &self.contract.text;
        let key = old.find("\"version\"").unwrap_or(0);
        let (before, after) = old.split_at(key);
        let new = [before, &after.replacen(&format!("\"{from}\""), &format!("\"{to}\""), 1)].concat();
        effects.replace(MARKER, old, &new);
        let edits = vec![FileEdit { path: MARKER.to_owned(), before: old.clone(), after: new }];
        let message = format!("codifica {to}");
        effects.commit = Some(BoardCommit { message, edits, is_needed: false });
        Ok(effects)
    }
}

#[cfg(test)]
mod tests {
    use super::super::CodificaSettings;
    use super::super::contract::Contract;
    use super::*;

    #[test]
    fn only_the_version_is_written() {
        let text = "{ \"note\": \"0.1\", \"protocol\":\"codifica\",\n \"version\" : \"0.1\", \"spec\":\"s.md\", \"state\":\"w.md\"}";
        let board = Codifica {
            contract: Contract::parse(text).expect("a contract"),
            setting: CodificaSettings::default(),
        };
        let effects = board.migrate(CodificaVersion::V0_2).expect("a way");
        let commit = effects.commit.expect("a commit");
        assert_eq!(commit.edits[0].after, text.replace("\"version\" : \"0.1\"", "\"version\" : \"0.2\""));
        assert!(board.migrate(CodificaVersion::V0_1).expect("no way to go").is_empty());
    }
}
