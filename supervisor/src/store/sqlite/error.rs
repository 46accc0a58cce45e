//! How what SQLite says becomes what a store says.

use std::path::Path;

use super::store_file::StoreFileError;
use crate::store::AttemptStoreError;

pub(super) const BUSY: u32 = 5;
const CORRUPT: u32 = 11;

/// Which of SQLite's errors it is; what comes above the lowest byte says in which way.
pub(super) fn code(error: &sqlx::Error) -> Option<u32> {
    let code = error.as_database_error()?.code()?.parse::<u32>().ok()?;
    Some(code & 0xff)
}

/// Says which store it was.
pub(super) trait WithStorePath<T> {
    fn at(self, path: &Path) -> Result<T, AttemptStoreError>;
}

impl<T> WithStorePath<T> for Result<T, sqlx::Error> {
    fn at(self, path: &Path) -> Result<T, AttemptStoreError> {
        self.map_err(|error| {
            match code(&error) {
                Some(BUSY) => return AttemptStoreError::Busy { path: path.display().to_string() },
                Some(CORRUPT) => {
                    let said = error.as_database_error().map(|error| error.message().to_owned());
                    let what = said.unwrap_or_else(|| error.to_string());
                    return AttemptStoreError::Damaged { path: path.display().to_string(), what };
                }
                _ => {}
            }
            let source = match error {
                // Its text would be repeated.
                sqlx::Error::Database(error) => error.into_error(),
                other => other.into(),
            };
            AttemptStoreError::Unusable { path: path.display().to_string(), source }
        })
    }
}

impl<T> WithStorePath<T> for Result<T, StoreFileError> {
    fn at(self, path: &Path) -> Result<T, AttemptStoreError> {
        self.map_err(|refusal| AttemptStoreError::Unusable {
            path: path.display().to_string(),
            source: Box::new(refusal),
        })
    }
}
