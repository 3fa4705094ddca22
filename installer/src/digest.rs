//! SHA-256 of a file's contents.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest as _, Sha256};

/// Read at a time, in bytes.
const PIECE: usize = 64 << 10;

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of some contents.
    #[must_use]
    pub fn of(contents: &[u8]) -> Self {
        Self(Sha256::digest(contents).into())
    }

    /// The digest of a file, read piece by piece: whole, our binaries would be half of what the agent needs of memory.
    pub(crate) fn of_file(path: &Path) -> io::Result<Self> {
        Self::of_rest(File::open(path)?)
    }

    /// The digest of what is still to be read.
    pub(crate) fn of_rest(mut from: impl Read) -> io::Result<Self> {
        let (mut hasher, mut piece) = (Sha256::new(), vec![0; PIECE]);
        loop {
            match from.read(&mut piece) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_digest_of_its_contents() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 7] {
            let contents: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
            std::fs::write(&path, &contents).unwrap();
            assert_eq!(Digest::of_file(&path).unwrap(), Digest::of(&contents), "{length} bytes");
        }
    }
}
