//! The logs of units, as the Pod of a task writes them into a capture's folder: redacted, private, their newest part. The agent trusts
//! neither their names nor their sizes.

use std::fs;
use std::io::{self, BufRead, Read, Write as _};
use std::path::Path;

use api::capture::{LOG_UNITS_MAX, UNIT_LOG_BYTES_MAX};
use serde::{Deserialize, Serialize};

use super::space::FreeSpace;
use super::store::{CaptureFolder, create, open};
use crate::redaction::{Redactions, Redactor};

/// The longest line; the rest of a longer one is the next line, so a secret there may not be recognized. journald ends lines at 48 KiB;
/// journalctl adds time, host and unit.
const LINE_MAX: u64 = 64 << 10;

/// The most bytes that are kept of a log.
const BYTES_MAX: usize = UNIT_LOG_BYTES_MAX as usize;
/// The longest description of a log, in bytes.
const DESCRIPTION_MAX: u64 = 4096;

/// What is known of a log besides its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UnitLog {
    /// What was replaced in it.
    pub redactions: Redactions,
    /// Whether older lines were left out.
    pub is_shortened: bool,
    /// Why there is no text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
}

/// Reads the log of a unit to its end: the redacted text of its newest part.
///
/// # Errors
/// When it cannot be read.
pub fn read(log: impl Read) -> io::Result<(Vec<u8>, UnitLog)> {
    let mut redactor = Redactor::new().map_err(io::Error::other)?;
    let (mut kept, mut described) = (Vec::new(), UnitLog::default());
    let mut log = io::BufReader::new(log);
    loop {
        let mut line = Vec::new();
        if log.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&line);
        kept.extend_from_slice(redactor.line(text.trim_end_matches('\n')).as_bytes());
        kept.push(b'\n');
        // Now and then, so that each byte is moved once or twice.
        if kept.len() > 2 * BYTES_MAX {
            described.is_shortened |= shorten(&mut kept);
        }
    }
    described.is_shortened |= shorten(&mut kept);
    described.redactions = redactor.counts();
    Ok((kept, described))
}

/// Whether the disk has space for another log.
///
/// # Errors
/// When it does not, or the folder is gone.
pub fn check_space(folder: &Path) -> io::Result<()> {
    FreeSpace::of(folder).and_then(|space| space.check(UNIT_LOG_BYTES_MAX)).map_err(io::Error::other)
}

/// Writes the log of a unit into the folder of logs. A folder that is gone was removed with its capture: that is an error.
///
/// # Errors
/// When the text cannot be written.
pub fn write(folder: &Path, unit: &str, text: &[u8], described: &UnitLog) -> io::Result<()> {
    let unfinished = folder.join(format!("{unit}.log.part"));
    create(&unfinished)?.write_all(text)?;
    let description = create(&folder.join(format!("{unit}.json")))?;
    serde_json::to_writer(description, described)?;
    fs::rename(unfinished, folder.join(format!("{unit}.log")))
}

/// Removes the oldest lines beyond the bound. Returns whether there were some.
fn shorten(log: &mut Vec<u8>) -> bool {
    let excess = log.len().saturating_sub(BYTES_MAX);
    let Some(last) = excess.checked_sub(1) else { return false };
    let end = log.iter().skip(last).position(|byte| *byte == b'\n').map_or(log.len(), |at| last + at + 1);
    log.drain(..end);
    true
}

/// The units whose logs are finished, with what is known of each.
pub(super) fn finished(folder: &CaptureFolder) -> Vec<(String, UnitLog)> {
    let names = fs::read_dir(folder.logs()).into_iter().flatten().take(4 * LOG_UNITS_MAX);
    let mut names: Vec<String> = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    let units = names.iter().filter_map(|name| name.strip_suffix(".log"));
    units.take(LOG_UNITS_MAX).map(|unit| (unit.to_owned(), described(folder, unit))).collect()
}

fn described(folder: &CaptureFolder, unit: &str) -> UnitLog {
    let mut text = String::new();
    let read = open(&folder.logs().join(format!("{unit}.json")), DESCRIPTION_MAX)
        .and_then(|(file, _)| file.take(DESCRIPTION_MAX).read_to_string(&mut text));
    read.ok().and_then(|_| serde_json::from_str(&text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn log_is_redacted_private_and_its_newest_part() {
        let directory = tempfile::tempdir().unwrap();
        let secret =
            "1 password=hunter2\n2 -----BEGIN RSA PRIVATE KEY-----\n3 MIIsecret\n4 -----END RSA PRIVATE KEY-----\n";
        let old = "0 old line\n".repeat(400_000);
        let recent = "5 recent line\n".repeat(200_000);
        let log = [old.as_bytes(), &[0xff, b'\n'], recent.as_bytes(), secret.as_bytes()].concat();
        let (text, described) = read(log.as_slice()).unwrap();
        write(directory.path(), "kubelet.service", &text, &described).unwrap();
        let redactions = Redactions { pem: 1, named_values: 1, ..Redactions::default() };
        assert_eq!(described, UnitLog { redactions, is_shortened: true, error: String::new() });
        let path = directory.path().join("kubelet.service.log");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.len() as u64 <= UNIT_LOG_BYTES_MAX && text.len() as u64 > UNIT_LOG_BYTES_MAX - LINE_MAX);
        assert!(text.ends_with("5 recent line\n1 password=[redacted]\n2 [redacted]\n3 [redacted]\n4 [redacted]\n"));
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!directory.path().join("kubelet.service.log.part").exists());
    }

    #[test]
    fn log_of_empty_lines_takes_no_more_memory_than_bytes() {
        let log = "\n".repeat(3 * BYTES_MAX);
        let (text, described) = read(log.as_bytes()).unwrap();
        assert!(described.is_shortened && text.len() == BYTES_MAX);
        let mut short = b"one\ntwo\n".to_vec();
        assert!(!shorten(&mut short) && short == b"one\ntwo\n");
    }

    #[test]
    fn secret_in_the_longest_line_of_the_journal_is_redacted() {
        let line = format!("2026-01-02T03:04:05+0000 node-a kubelet[1]: {} password=hunter2\n", "x ".repeat(24 << 10));
        let (text, described) = read(line.as_bytes()).unwrap();
        assert!(String::from_utf8(text).unwrap().ends_with(" password=[redacted]\n"));
        assert_eq!(described.redactions.named_values, 1);
    }

    #[test]
    fn log_of_a_removed_capture_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        assert!(write(&directory.path().join("gone"), "kubelet.service", b"text\n", &UnitLog::default()).is_err());
    }

    #[test]
    fn logs_that_are_no_files_of_their_size_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let folder = CaptureFolder::create(directory.path(), "uid", true).unwrap();
        fs::write(folder.logs().join("a.service.log"), "text").unwrap();
        fs::write(folder.logs().join("half.service.log.part"), "text").unwrap();
        symlink("/etc/hostname", folder.logs().join("link.service.log")).unwrap();
        File::create(folder.logs().join("long.service.log")).unwrap().set_len(UNIT_LOG_BYTES_MAX + 1).unwrap();
        let names: Vec<String> = finished(&folder).into_iter().map(|(unit, _)| unit).collect();
        assert_eq!(names, ["a.service", "link.service", "long.service"]);
        let opened: Vec<bool> = names.iter().map(|unit| folder.unit_log(unit).is_ok()).collect();
        assert_eq!(opened, [true, false, false]);
    }
}
