//! A journal of ours: one file in the state folder, durable before the change that it announces.

#![allow(clippy::disallowed_methods, reason = "opens our own state")]

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::{Error, files};

/// Writes a journal. It is durable when this returns.
pub(super) fn write(place: &Path, name: &str, text: &[u8]) -> Result<(), Error> {
    let (path, next) = (place.join(name), place.join(format!("{name}.next")));
    let failed = files("write", &path);
    let mut file = File::create(&next).map_err(&failed)?;
    file.write_all(text).and_then(|()| file.sync_all()).map_err(&failed)?;
    fs::rename(&next, &path).map_err(&failed)?;
    sync(place)
}

/// Reads a journal; `None` where there is none.
pub(super) fn read<T>(
    place: &Path,
    name: &str,
    parse: impl FnOnce(&[u8]) -> Result<T, String>,
) -> Result<Option<T>, Error> {
    let path = place.join(name);
    match fs::read(&path) {
        Ok(text) => parse(&text).map(Some).map_err(|reason| Error::Journal { path, reason }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(files("read", &path)(error)),
    }
}

/// Removes a journal, if it is there. The removal is durable when this returns.
pub(super) fn remove(place: &Path, name: &str) -> Result<(), Error> {
    let path = place.join(name);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(files("remove", &path)(error)),
        _ => sync(place),
    }
}

/// Parses the JSON of a journal, if it has the version that we write.
pub(super) fn parse<T: DeserializeOwned>(text: &[u8], version: u32) -> Result<T, String> {
    #[derive(Deserialize)]
    struct JournalVersion {
        version: u32,
    }
    let reason = |error: serde_json::Error| error.to_string();
    let found: JournalVersion = serde_json::from_slice(text).map_err(reason)?;
    if found.version != version {
        return Err(format!("it has version {}", found.version));
    }
    serde_json::from_slice(text).map_err(reason)
}

fn sync(folder: &Path) -> Result<(), Error> {
    File::open(folder).and_then(|open| open.sync_all()).map_err(files("sync", folder))
}
