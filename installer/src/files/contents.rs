//! The contents of binaries, read in pieces: a whole one would be half of the agent's memory.

#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

/// Read at a time, in bytes.
const PIECE: usize = 64 << 10;

/// Opens a file for reading. A link is not followed, and a pipe does not block.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits()).open(path)
}

/// Why what has the name of a file is no regular file, and the next step.
pub(crate) fn irregular(path: &Path) -> String {
    match fs::read_link(path) {
        Ok(to) => format!("it is a symbolic link to {}; replace it by a regular file", to.display()),
        Err(_) => "it is a directory or special file; move it away".to_owned(),
    }
}

pub(crate) fn same_contents(one: File, other: File) -> io::Result<bool> {
    let [mut one, mut other] = [one, other].map(|file| BufReader::with_capacity(PIECE, file));
    loop {
        let (left, right) = (one.fill_buf()?, other.fill_buf()?);
        let length = left.len().min(right.len());
        if length == 0 {
            return Ok(left.len() == right.len());
        }
        if left.get(..length) != right.get(..length) {
            return Ok(false);
        }
        one.consume(length);
        other.consume(length);
    }
}

/// Whether a file is one of our plugins, of any release: by a mark in it.
pub(crate) fn is_our_plugin(path: &Path) -> io::Result<bool> {
    let mut file = BufReader::with_capacity(PIECE, open_file(path)?);
    let mut window = Vec::new();
    loop {
        let piece = file.fill_buf()?;
        let length = piece.len();
        if length == 0 {
            return Ok(false);
        }
        window.extend_from_slice(piece);
        file.consume(length);
        let has = |mark: &&str| window.windows(mark.len()).any(|text| text == mark.as_bytes());
        if vcn::PLUGIN_MARKS.iter().any(has) {
            return Ok(true);
        }
        // A mark may lie across two pieces.
        let longest = vcn::PLUGIN_MARKS.map(str::len).into_iter().max().unwrap_or_default();
        window.drain(..window.len().saturating_sub(longest));
    }
}
