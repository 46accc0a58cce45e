//! How what SQLite says becomes what a store says.

use std::path::Path;

use super::place::Refusal;
use crate::store::StoreError;

pub(super) const BUSY: u32 = 5;
const CORRUPT: u32 = 11;

/// Which of SQLite's errors it is; what comes above the lowest byte says in which way.
pub(super) fn code(error: &sqlx::Error) -> Option<u32> {
    let code = error.as_database_error()?.code()?.parse::<u32>().ok()?;
    Some(code & 0xff)
}

/// Says which store it was.
pub(super) trait At<T> {
    fn at(self, path: &Path) -> Result<T, StoreError>;
}

impl<T> At<T> for Result<T, sqlx::Error> {
    fn at(self, path: &Path) -> Result<T, StoreError> {
        self.map_err(|error| {
            match code(&error) {
                Some(BUSY) => return StoreError::Busy { path: path.display().to_string() },
                Some(CORRUPT) => {
                    let said = error.as_database_error().map(|error| error.message().to_owned());
                    let what = said.unwrap_or_else(|| error.to_string());
                    return StoreError::Damaged { path: path.display().to_string(), what };
                }
                _ => {}
            }
            let source = match error {
                // Its text would be repeated.
                sqlx::Error::Database(error) => error.into_error(),
                other => other.into(),
            };
            StoreError::Unusable { path: path.display().to_string(), source }
        })
    }
}

impl<T> At<T> for Result<T, Refusal> {
    fn at(self, path: &Path) -> Result<T, StoreError> {
        self.map_err(|refusal| StoreError::Unusable {
            path: path.display().to_string(),
            source: Box::new(refusal),
        })
    }
}
