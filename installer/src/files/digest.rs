//! SHA-256 of a file's contents.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest as _, Sha256};

/// Read at a time, in bytes: a whole binary would be half of the agent's memory.
const PIECE: usize = 64 << 10;

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Digest([u8; 32]);

impl Digest {
    /// The digest of some contents.
    pub(crate) fn of(contents: &[u8]) -> Self {
        Self(Sha256::digest(contents).into())
    }

    /// The digest of a file.
    pub(crate) fn of_file(path: &Path) -> io::Result<Self> {
        let (mut file, mut hasher, mut piece) = (File::open(path)?, Sha256::new(), vec![0; PIECE]);
        loop {
            match file.read(&mut piece) {
                Ok(0) => return Ok(Self(hasher.finalize().into())),
                Ok(length) => hasher.update(piece.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
