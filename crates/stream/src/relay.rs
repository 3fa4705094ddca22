//! Passes the entries of a tar on into a folder of another one, whole or not at all, and counts them. What arrives is checked, so
//! that a hostile writer can neither leave the folder nor exceed the bound.

use std::io;

use thiserror::Error;

use crate::entry::entry_head;
use crate::pipe::CHUNK_MAX;
use crate::reader::{Piece, TarError, TarReader};

/// The longest content that [`Relay::keeping`] keeps, in bytes.
const KEPT_MAX: usize = 256 * 1024;

/// A tar on its way.
#[derive(Debug)]
pub struct Relay {
    reader: TarReader,
    folder: String,
    bytes_max: u64,
    relayed: Relayed,
    /// The entry that is being passed on.
    current: String,
    kept: String,
    /// The bytes that the names of entries take: many long ones must not exceed the bound, either.
    heads: u64,
    /// The first entry that exceeded the bound.
    excess: Option<String>,
}

/// What was passed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relayed {
    /// The number of entries that were relayed.
    pub entries: u64,
    /// The bytes of their content.
    pub bytes: u64,
    /// The zeros that complete the last entry, whose content ended early.
    pub zeros: u64,
    /// What is missing, and why; none after a complete tar.
    pub problem: Option<String>,
    /// The content of the entry to keep.
    pub kept: Vec<u8>,
}

/// Why no more is passed on.
#[derive(Debug, Error)]
pub enum RelayError {
    /// It is not a tar.
    #[error(transparent)]
    Tar(#[from] TarError),
    /// An entry cannot be named so.
    #[error("name a tar entry")]
    Name(#[from] io::Error),
}

impl Relayed {
    /// The zeros that complete the last entry.
    pub fn zero_chunks(&self) -> impl Iterator<Item = &'static [u8]> {
        static ZEROS: [u8; CHUNK_MAX] = [0; CHUNK_MAX];
        let mut rest = self.zeros;
        std::iter::from_fn(move || {
            let length = usize::try_from(rest).unwrap_or(CHUNK_MAX).min(CHUNK_MAX);
            rest -= length as u64;
            ZEROS.get(..length).filter(|zeros| !zeros.is_empty())
        })
    }
}

impl Relay {
    /// Into `folder`, at most so many bytes of content and names.
    pub fn into_folder(folder: impl Into<String>, bytes_max: u64) -> Self {
        let (reader, relayed) = (TarReader::default(), Relayed::default());
        let [current, kept] = [String::new(), String::new()];
        Self { reader, folder: folder.into(), bytes_max, relayed, current, kept, heads: 0, excess: None }
    }

    /// The same, and keeps a copy of a short entry.
    #[must_use]
    pub fn keeping(mut self, path: impl Into<String>) -> Self {
        self.kept = path.into();
        self
    }

    /// Passes these bytes on to `out`. Returns whether the relay needs more.
    ///
    /// # Errors
    /// When it is not a tar of files.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> Result<bool, RelayError> {
        while self.excess.is_none()
            && let Some(piece) = self.reader.next(&mut bytes)?
        {
            match piece {
                Piece::Entry { path, size } => self.begin(path, size, out)?,
                Piece::Data(data) => {
                    out.extend_from_slice(data);
                    self.relayed.bytes += data.len() as u64;
                    if self.current == self.kept && self.relayed.kept.len() + data.len() <= KEPT_MAX {
                        self.relayed.kept.extend_from_slice(data);
                    }
                }
                Piece::Padding(zeros) => out.extend_from_slice(zeros),
                Piece::End => {}
            }
        }
        Ok(self.excess.is_none() && !self.reader.is_ended())
    }

    /// What was passed on, up to now.
    pub const fn relayed(&self) -> &Relayed {
        &self.relayed
    }

    /// The entry that is being passed on.
    pub fn current(&self) -> &str {
        &self.current
    }

    /// What was passed on, when no more comes; `error` is the reason, if that was a failure.
    pub fn finish(self, error: Option<String>) -> Relayed {
        let Self { reader, mut relayed, current, excess, bytes_max, .. } = self;
        if reader.is_ended() {
            return relayed;
        }
        let why = error.unwrap_or_else(|| "the stream ended early".to_owned());
        relayed.problem = Some(match excess {
            Some(path) => format!("entries from {path} on exceed {bytes_max} bytes"),
            None if reader.missing() > 0 => {
                relayed.zeros = reader.missing();
                format!(
                    "{why}; the end of {current} and later entries are missing, zeros replace {} bytes",
                    relayed.zeros
                )
            }
            None => format!("{why}; later entries are missing"),
        });
        relayed
    }

    fn begin(&mut self, path: String, size: u64, out: &mut Vec<u8>) -> Result<(), RelayError> {
        // Each of our tars has one folder.
        let name = path.split_once('/').map_or(path.as_str(), |(_, name)| name);
        let name = if name.is_empty() { "_" } else { name };
        let head = entry_head(&format!("{}/{name}", self.folder), size)?;
        let heads = self.heads + head.len() as u64;
        if size.saturating_add(self.relayed.bytes + heads) > self.bytes_max {
            self.excess = Some(path);
            return Ok(());
        }
        self.relayed.entries += 1;
        self.heads = heads;
        out.extend_from_slice(&head);
        self.current = name.to_owned();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{end, entry};

    fn tar(entries: &[(&str, usize)]) -> Vec<u8> {
        let mut tar: Vec<u8> =
            entries.iter().flat_map(|(path, size)| entry(path, &vec![b'x'; *size]).unwrap()).collect();
        tar.extend_from_slice(&end());
        tar
    }

    /// The paths and sizes after a relay of the first bytes of a tar, and what was counted.
    fn relayed(tar: &[u8], bytes_max: u64) -> (Vec<(String, u64)>, Relayed) {
        let (mut relay, mut out) = (Relay::into_folder("bundle/nodes/a", bytes_max).keeping("index.json"), Vec::new());
        for part in tar.chunks(100) {
            if !relay.push(part, &mut out).unwrap() {
                break;
            }
        }
        let relayed = relay.finish(None);
        relayed.zero_chunks().for_each(|zeros| out.extend_from_slice(zeros));
        out.extend_from_slice(&end());
        let mut archive = tar::Archive::new(out.as_slice());
        let entries = archive.entries().unwrap().map(Result::unwrap);
        (entries.map(|entry| (entry.path().unwrap().display().to_string(), entry.size())).collect(), relayed)
    }

    #[test]
    fn entries_go_to_the_folder() {
        let tar = tar(&[("bundle/net/links.txt", 700), ("bundle/a b/passwd", 1), ("bundle/index.json", 3)]);
        let (paths, relayed) = relayed(&tar, 5000);
        let expected = [("net/links.txt", 700), ("a_b/passwd", 1), ("index.json", 3)]
            .map(|(path, size)| (format!("bundle/nodes/a/{path}"), size));
        assert_eq!(paths, expected);
        assert_eq!(relayed, Relayed { entries: 3, bytes: 704, kept: b"xxx".to_vec(), ..Relayed::default() });
    }

    #[test]
    fn entry_beyond_the_bound_is_left_out_whole() {
        let tar = tar(&[("bundle/a", 700), ("bundle/b", 301), ("bundle/c", 1)]);
        let (paths, relayed) = relayed(&tar, 1512);
        assert_eq!(paths, [("bundle/nodes/a/a".to_owned(), 700)]);
        assert_eq!(relayed.problem.as_deref(), Some("entries from bundle/b on exceed 1512 bytes"));
    }

    #[test]
    fn long_names_are_bounded_as_content() {
        let name = "a/".repeat(1000);
        let entries: Vec<(String, usize)> = (0..40).map(|number| (format!("{name}{number}"), 0)).collect();
        let entries: Vec<(&str, usize)> = entries.iter().map(|(name, size)| (name.as_str(), *size)).collect();
        let (mut relay, mut out) = (Relay::into_folder("bundle", 20_000), Vec::new());
        relay.push(&tar(&entries), &mut out).unwrap();
        assert!(out.len() < 30_000, "{} bytes", out.len());
        assert!(relay.finish(None).problem.is_some_and(|problem| problem.contains("exceed 20000 bytes")));
    }

    #[test]
    fn cut_entry_is_completed_and_named() {
        let tar = tar(&[("bundle/a", 700), ("bundle/b", 300)]);
        for length in 0..tar.len() - 1024 {
            let (paths, relayed) = relayed(&tar[..length], 5000);
            assert_eq!(paths.len() as u64, relayed.entries, "{length}");
            assert!(relayed.problem.is_some(), "{length}");
            let is_cut = relayed.zeros > 0;
            assert_eq!(relayed.problem.unwrap().contains("zeros replace"), is_cut, "{length}");
        }
        let cut = relayed(&tar[..512 + 1024 + 512 + 100], 5000).1;
        let expected = "the stream ended early; the end of b and later entries are missing, zeros replace 412 bytes";
        assert_eq!(cut.problem.as_deref(), Some(expected));
    }
}
