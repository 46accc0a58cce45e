//! How what SQLite says becomes what a store says.

use std::path::Path;

use super::place::Refusal;
use crate::store::StoreError;

/// Says which store it was.
pub(super) trait At<T> {
    fn at(self, path: &Path) -> Result<T, StoreError>;
}

impl<T> At<T> for Result<T, sqlx::Error> {
    fn at(self, path: &Path) -> Result<T, StoreError> {
        self.map_err(|error| {
            // SQLITE_BUSY; what comes above the lowest byte says in which way.
            let code = error.as_database_error().and_then(|error| error.code()?.parse::<u32>().ok());
            if code.is_some_and(|code| code & 0xff == 5) {
                return StoreError::Busy { path: path.display().to_string() };
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
