//! The head of a tar entry, which is written before its content is there.

use std::io::{self, Read, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// A header, and what the content of an entry is padded to, in bytes.
pub(crate) const BLOCK: usize = 512;

/// The bytes before an entry of this size: one block, or more for a long name. The file's mode is 0600.
///
/// # Errors
/// When the path is not valid.
pub(crate) fn entry_head(path: &str, size: u64) -> io::Result<Vec<u8>> {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(0o600);
    header.set_mtime(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
    let mut tar = tar::Builder::new(Vec::new());
    tar.append_data(&mut header, path, io::empty())?;
    Ok(tar.get_ref().clone())
}

/// A whole entry.
///
/// # Errors
/// When the path is not valid.
pub fn entry(path: &str, content: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = entry_head(path, content.len() as u64)?;
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    Ok(bytes)
}

/// Writes an entry whose content is read piece by piece.
///
/// # Errors
/// When the path is not valid, the content is shorter than its size, or either end fails.
pub fn copy_entry(path: &str, size: u64, content: impl Read, mut out: impl Write) -> io::Result<()> {
    out.write_all(&entry_head(path, size)?)?;
    if io::copy(&mut content.take(size), &mut out)? < size {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("{path} became shorter")));
    }
    let padding = usize::try_from(size.next_multiple_of(BLOCK as u64) - size).unwrap_or(0);
    out.write_all([0; BLOCK].get(..padding).unwrap_or_default())
}

/// The bytes after the last entry.
pub const fn end() -> [u8; 1024] {
    [0; 1024]
}

/// A path as it may be extracted anywhere: relative, without `..`, of common characters.
pub fn entry_path(path: &str) -> String {
    let is_common = |letter: char| letter.is_ascii_alphanumeric() || "-._@+,:=~".contains(letter);
    let component = |text: &str| match text {
        "." | ".." => "_".to_owned(),
        text => text.chars().map(|letter| if is_common(letter) { letter } else { '_' }).collect(),
    };
    path.split('/').filter(|text| !text.is_empty()).map(component).collect::<Vec<String>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_stays_below_its_folder() {
        for (path, expected) in [
            ("bundle/state/pools.json", "bundle/state/pools.json"),
            ("/etc/../passwd", "etc/_/passwd"),
            ("a//./b\u{1b}[2J\\c\n", "a/_/b__2J_c_"),
            ("", ""),
        ] {
            assert_eq!(entry_path(path), expected);
        }
    }

    #[test]
    fn entry_is_padded_to_whole_blocks() {
        for (size, blocks) in [(0, 1), (1, 2), (512, 2), (513, 3)] {
            assert_eq!(entry("a", &vec![b'x'; size]).unwrap().len(), blocks * BLOCK, "{size}");
        }
    }

    #[test]
    fn entry_is_the_same_piece_by_piece() {
        for size in [0_usize, 1, 512, 100_000] {
            let (content, mut out) = (vec![b'x'; size], Vec::new());
            copy_entry("a", size as u64, content.as_slice(), &mut out).unwrap();
            assert_eq!(out.len(), entry("a", &content).unwrap().len(), "{size}");
            assert!(out.len() % BLOCK == 0 && out[512..].starts_with(&content));
        }
        let short = copy_entry("a", 2, &b"x"[..], Vec::new()).unwrap_err();
        assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn head_of_a_long_path_has_more_blocks() {
        assert_eq!(entry_head("bundle/a", 5).unwrap().len(), 512);
        assert_eq!(entry_head(&format!("bundle/{}", "a".repeat(200)), 5).unwrap().len(), 3 * 512);
    }
}
