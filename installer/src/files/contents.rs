//! The contents of binaries, read in pieces: a whole one would be half of the agent's memory.

#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use serde_json::{Map, Value};

/// Read at a time, in bytes.
const PIECE: usize = 64 << 10;

/// Opens a file for reading. A link is not followed, and a pipe does not block.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits()).open(path)
}

/// What is at a path instead of a regular file, and the next step.
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

/// Of a binary's beginning and end, in bytes: as long as the header of an ELF file, and as one of its section headers.
const EDGE: u64 = 64;

/// Longer than any configuration, in bytes.
pub(crate) const MAX_CONFIGURATION: u64 = 1 << 20;

/// Whether a file with the name of one of our files is damaged, as after a power cut. A configuration is damaged if it is not a JSON
/// object, and a binary if it is empty, cut short or ends in NULs. It was one of our files, because no other program can use it.
pub(crate) fn is_damaged(file: File, name: &str) -> io::Result<bool> {
    if !name.ends_with(".conflist") {
        return has_lost_its_end(file);
    }
    let mut text = Vec::new();
    file.take(MAX_CONFIGURATION).read_to_end(&mut text)?;
    Ok(serde_json::from_str::<Map<String, Value>>(&String::from_utf8_lossy(&text)).is_err())
}

fn has_lost_its_end(mut file: File) -> io::Result<bool> {
    let length = file.metadata()?.len();
    let (mut head, mut tail) = (Vec::new(), Vec::new());
    (&mut file).take(EDGE).read_to_end(&mut head)?;
    file.seek(SeekFrom::Start(length.saturating_sub(EDGE)))?;
    file.take(EDGE).read_to_end(&mut tail)?;
    // An ELF file lists its sections at e_shoff: e_shnum entries of e_shentsize bytes. Linkers write them last.
    let number = |from: usize, to: usize| {
        let bytes = head.get(from..to).unwrap_or_default();
        bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let end = number(40, 48).saturating_add(number(58, 60) * number(60, 62));
    Ok(tail.iter().all(|byte| *byte == 0) || head.starts_with(b"\x7fELF\x02\x01") && end > length)
}

/// Whether a file is one of our plugins, of any release: by a mark in it, or damaged.
pub(crate) fn is_our_plugin(path: &Path) -> io::Result<bool> {
    if is_damaged(open_file(path)?, "")? {
        return Ok(true);
    }
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
