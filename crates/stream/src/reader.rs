//! A tar, read piece by piece as its bytes arrive. Synchronous and pure: it keeps one block and one long name.

use thiserror::Error;

use crate::entry::{BLOCK, entry_path};

/// The longest name, in bytes.
const NAME_MAX: u64 = 4096;
/// The type of an entry whose content is the name of the next one (GNU).
const LONG_NAME: u8 = b'L';

/// A part of a tar.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// An entry begins: its path, as [`entry_path`] makes it safe, and its size.
    Entry {
        /// The path of the entry.
        path: String,
        /// The size of its data, in bytes.
        size: u64,
    },
    /// Content of the entry.
    Data(&'a [u8]),
    /// What follows the content.
    Padding(&'a [u8]),
    /// The tar is complete. What follows is ignored.
    End,
}

/// Not a tar as our programs write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TarError {
    /// No header where one must be.
    #[error("a tar header is not valid")]
    Header,
    /// A link, a folder or a device.
    #[error("a tar entry is not a file")]
    Kind,
    /// A name without end.
    #[error("a tar entry's name is longer than {NAME_MAX} bytes")]
    Name,
}

/// The state between two pieces.
#[derive(Debug, Default)]
pub struct TarReader {
    block: Vec<u8>,
    /// Bytes of the entry that are still to come, and the padding after them.
    rest: u64,
    padding: u64,
    /// The name from an entry before, and whether it is being read.
    long_name: Option<Vec<u8>>,
    is_name: bool,
    is_ended: bool,
}

impl TarReader {
    /// Takes the next piece from the bytes that arrived; none when more are needed.
    ///
    /// # Errors
    /// When it is not a tar of files.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Piece<'a>>, TarError> {
        loop {
            if self.is_ended || input.is_empty() {
                *input = &[];
                return Ok(None);
            }
            if self.rest > 0 {
                let data = take(input, self.rest);
                self.rest -= data.len() as u64;
                match (&mut self.long_name, self.is_name) {
                    (Some(name), true) => name.extend_from_slice(data),
                    _ => return Ok(Some(Piece::Data(data))),
                }
            } else if self.padding > 0 {
                let zeros = take(input, self.padding);
                self.padding -= zeros.len() as u64;
                if !self.is_name {
                    return Ok(Some(Piece::Padding(zeros)));
                }
            } else {
                let missing = (BLOCK - self.block.len()) as u64;
                self.block.extend_from_slice(take(input, missing));
                if self.block.len() == BLOCK
                    && let Some(piece) = self.header()?
                {
                    return Ok(Some(piece));
                }
            }
        }
    }

    /// Bytes that the current entry lacks, with its padding.
    pub const fn missing(&self) -> u64 {
        self.rest + self.padding
    }

    /// Whether the end of the tar was read.
    pub const fn is_ended(&self) -> bool {
        self.is_ended
    }

    fn header(&mut self) -> Result<Option<Piece<'static>>, TarError> {
        let block = std::mem::take(&mut self.block);
        if block.iter().all(|byte| *byte == 0) {
            self.is_ended = true;
            return Ok(Some(Piece::End));
        }
        let mut header = tar::Header::new_old();
        header.as_mut_bytes().copy_from_slice(&block);
        let is_valid = header.cksum().is_ok_and(|sum| sum == checksum(&block));
        let size = header.entry_size().ok().filter(|_| is_valid).ok_or(TarError::Header)?;
        self.rest = size;
        self.padding = size.wrapping_neg() % BLOCK as u64;
        self.is_name = header.entry_type().as_byte() == LONG_NAME;
        if self.is_name {
            self.long_name = Some(Vec::new());
            return if size > NAME_MAX { Err(TarError::Name) } else { Ok(None) };
        }
        if !header.entry_type().is_file() {
            return Err(TarError::Kind);
        }
        let name = self.long_name.take().unwrap_or_else(|| header.path_bytes().into_owned());
        let name = name.strip_suffix(&[0]).unwrap_or(&name);
        Ok(Some(Piece::Entry { path: entry_path(&String::from_utf8_lossy(name)), size }))
    }
}

fn take<'a>(input: &mut &'a [u8], most: u64) -> &'a [u8] {
    let length = usize::try_from(most).unwrap_or(usize::MAX).min(input.len());
    let (taken, rest) = input.split_at_checked(length).unwrap_or((input, &[]));
    *input = rest;
    taken
}

/// The sum of all bytes, with spaces in the place of the sum.
fn checksum(block: &[u8]) -> u32 {
    let in_sum = |at: usize| (148..156).contains(&at);
    block.iter().enumerate().map(|(at, byte)| if in_sum(at) { u32::from(b' ') } else { u32::from(*byte) }).sum()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// An entry with its content.
    type Content = (String, Vec<u8>);

    /// Entries, and whether the tar ended, when a tar arrives in parts of this length.
    fn read(tar: &[u8], part: usize) -> Result<(Vec<Content>, bool), TarError> {
        let (mut reader, mut found) = (TarReader::default(), Vec::<Content>::new());
        for mut bytes in tar.chunks(part) {
            while let Some(piece) = reader.next(&mut bytes)? {
                match piece {
                    Piece::Entry { path, .. } => found.push((path, Vec::new())),
                    Piece::Data(data) => found.last_mut().unwrap().1.extend_from_slice(data),
                    Piece::Padding(_) | Piece::End => {}
                }
            }
        }
        Ok((found, reader.is_ended()))
    }

    fn tar_of(entries: &[Content]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, content) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            tar.append_data(&mut header, path, content.as_slice()).unwrap();
        }
        tar.into_inner().unwrap()
    }

    proptest! {
        #[test]
        fn entries_are_those_that_were_written(
            entries in vec(("[a-z]{1,150}/[a-z0-9.]{1,80}x", vec(any::<u8>(), 0..2000)), 0..5), part in 1..2000_usize,
        ) {
            let tar = tar_of(&entries);
            prop_assert_eq!(read(&tar, part), Ok((entries, true)));
            // A part of it is not complete.
            prop_assert_eq!(read(&tar[..tar.len() - 1024], part).map(|(_, is_ended)| is_ended), Ok(false));
        }

        #[test]
        fn garbage_is_refused_or_incomplete(bytes in vec(any::<u8>(), 0..3000), part in 1..600_usize) {
            let _ = read(&bytes, part);
        }
    }

    #[test]
    fn path_out_of_the_folder_is_made_safe() {
        let mut header = tar::Header::new_gnu();
        let path = b"bundle/../../../etc/shadow";
        header.as_mut_bytes()[..path.len()].copy_from_slice(path);
        header.set_size(0);
        header.set_cksum();
        assert_eq!(read(header.as_bytes(), 512), Ok((vec![("bundle/_/_/_/etc/shadow".to_owned(), Vec::new())], false)));
    }

    #[test]
    fn links_folders_and_endless_names_are_refused() {
        for (kind, size, error) in [
            (tar::EntryType::Symlink, 0, TarError::Kind),
            (tar::EntryType::Directory, 0, TarError::Kind),
            (tar::EntryType::GNULongName, 1 << 40, TarError::Name),
        ] {
            let mut header = tar::Header::new_gnu();
            header.set_path("a").unwrap();
            header.set_entry_type(kind);
            header.set_size(size);
            header.set_cksum();
            assert_eq!(read(header.as_bytes(), 512), Err(error));
        }
        assert_eq!(read(&[1; 512], 512), Err(TarError::Header));
    }
}
