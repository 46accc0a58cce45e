//! The search for values that were passed to the agent in what it changed.

use std::fs::File;

use memchr::memmem::Finder;

use super::tree::{self, CHUNK};
use crate::secret::NamedSecret;

/// Searches for all of them.
#[derive(Debug)]
pub(crate) struct SecretSearch<'a> {
    finders: Vec<(&'a str, Finder<'static>)>,
    /// The most bytes of a value that can lie on the other side of a chunk's edge.
    overlap: usize,
}

impl<'a> SecretSearch<'a> {
    pub(crate) fn new(secrets: &'a [NamedSecret]) -> Self {
        let spelled = |secret: &'a NamedSecret| {
            secret
                .spellings()
                .map(|spelling| (secret.name.as_str(), Finder::new(&spelling).into_owned()))
                .collect::<Vec<_>>()
        };
        let finders: Vec<_> = secrets.iter().flat_map(spelled).collect();
        let overlap = finders.iter().map(|(_, finder)| finder.needle().len() - 1).max().unwrap_or(0);
        Self { finders, overlap }
    }

    /// The name of a secret that these bytes contain.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Option<&'a str> {
        self.finders.iter().find(|(_, finder)| finder.find(bytes).is_some()).map(|(name, _)| *name)
    }

    /// The name of a secret that a file contains. Memory does not grow with the file: the tail of each chunk
    /// is kept for a value that goes on in the next.
    pub(crate) fn file(&self, file: &mut File, size: u64) -> std::io::Result<Option<&'a str>> {
        if self.finders.is_empty() {
            return Ok(None);
        }
        let chunk = usize::try_from(size).unwrap_or(CHUNK).saturating_add(1).min(CHUNK);
        let mut buffer = vec![0; self.overlap + chunk];
        let mut kept = 0;
        loop {
            let read = tree::fill(file, &mut buffer[kept..kept + chunk])?;
            if let Some(name) = self.bytes(&buffer[..kept + read]) {
                return Ok(Some(name));
            }
            if read < chunk {
                return Ok(None);
            }
            let end = kept + read;
            kept = end.min(self.overlap);
            buffer.copy_within(end - kept..end, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};

    #[test]
    fn a_secret_is_found_wherever_it_lies_across_the_edges_of_chunks() {
        let secrets = [
            NamedSecret { name: "SHORT".into(), value: b"1234".to_vec() },
            NamedSecret { name: "KEY".into(), value: b"sk-0123456789".to_vec() },
            NamedSecret { name: "LONG".into(), value: vec![7; 300_000] },
        ];
        let search = SecretSearch::new(&secrets);
        for at in [0, 1, CHUNK - 13, CHUNK - 12, CHUNK - 1, CHUNK, 2 * CHUNK - 5, 5 * CHUNK - 1] {
            for secret in &secrets[1..] {
                let mut content = vec![b'1'; at];
                content.extend_from_slice(&secret.value);
                content.push(b'2');
                let mut file = tempfile::tempfile().expect("a file");
                file.write_all(&content).expect("written");
                file.rewind().expect("rewound");
                let found = search.file(&mut file, content.len() as u64).expect("read");
                assert_eq!(found, Some(secret.name.as_str()), "at {at}");
            }
        }
        assert_eq!(search.bytes(b"12341234"), None);
    }
}
