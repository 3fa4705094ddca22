//! The tar: entries are written as they come, redacted, and what was left out is kept for README.txt, the last entry.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::document::{LONGEST_DOCUMENT, is_document, too_long};
use super::redact::{self, Redacted};

/// The most of one entry, in bytes; a text that is longer is cut and said to be.
pub(super) const LONGEST: usize = 4 << 20;

pub(super) struct Archive<W: Write> {
    tar: tar::Builder<W>,
    /// The names of entries.
    names: Vec<String>,
    /// What was redacted, by entry.
    redacted: Vec<(String, usize)>,
    /// What is not there, and why.
    missing: Vec<(String, String)>,
}

/// A file that takes its name when it is whole.
pub(super) struct Replacing {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(to: W) -> Self {
        Self { tar: tar::Builder::new(to), names: Vec::new(), redacted: Vec::new(), missing: Vec::new() }
    }

    /// A text: its beginning if it is long, and of a long document nothing.
    pub(super) fn text(&mut self, name: &str, text: &str) -> io::Result<()> {
        let length = text.len();
        if length > LONGEST_DOCUMENT && is_document(name, text) {
            self.missing(name, &too_long(length));
            return Ok(());
        }
        // By whole lines: in half a one a secret may not be known as one.
        let longest = text.floor_char_boundary(LONGEST);
        let text = match text.get(..longest).filter(|_| length > LONGEST) {
            Some(beginning) => beginning.rfind('\n').and_then(|end| beginning.get(..=end)).unwrap_or_default(),
            None => text,
        };
        if text.len() < length {
            self.missing(name, &format!("all but the first {} of {length} bytes", text.len()));
        }
        let Redacted { text, count } = redact::redact(text);
        if count > 0 {
            self.redacted.push((name.to_owned(), count));
        }
        self.entry(name, text.as_bytes())
    }

    /// A value as JSON.
    pub(super) fn json(&mut self, name: &str, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string_pretty(value).map_err(io::Error::other)?;
        self.text(name, &text)
    }

    /// A text, or why there is none.
    pub(super) fn result(&mut self, name: &str, text: Result<String, String>) -> io::Result<()> {
        match text {
            Ok(text) => self.text(name, &text),
            Err(why) => {
                self.missing(name, &why);
                Ok(())
            }
        }
    }

    /// Something that could not be had.
    pub(super) fn missing(&mut self, name: &str, why: &str) {
        // Whoever could not be asked may tell a secret all the same.
        self.missing.push((name.to_owned(), redact::redact(why).text));
    }

    /// What there is and what there is not.
    pub(super) fn readme(&mut self, head: &str) -> io::Result<()> {
        let mut text = format!("{head}\nIn it:\n");
        for name in &self.names {
            let _ = writeln!(text, "  {name}");
        }
        text.push_str("\nRedacted (\"REDACTED\" stands in its place):\n");
        for (name, count) in &self.redacted {
            let _ = writeln!(text, "  {name}: {count} value(s)");
        }
        text.push_str(if self.redacted.is_empty() { "  nothing\n" } else { "" });
        text.push_str(
            "  By JSON keys and words that look like secrets, private keys, bearer tokens. Never taken: files in the CNI\n  \
             directory that are no configuration (kubeconfigs), the metadata service's credentials and user data.\n\nNot to be had:\n",
        );
        for (name, why) in &self.missing {
            let _ = writeln!(text, "  {name}: {why}");
        }
        text.push_str(if self.missing.is_empty() { "  nothing\n" } else { "" });
        self.entry("README.txt", text.as_bytes())
    }

    pub(super) fn finish(self) -> io::Result<W> {
        let mut to = self.tar.into_inner()?;
        to.flush()?;
        Ok(to)
    }

    fn entry(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
        self.names.push(name.to_owned());
        self.tar.append_data(&mut header, format!("bundle/{name}"), bytes)
    }
}

impl Replacing {
    /// Begins beside the path, readable by its owner alone.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let mut name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
        name.push(format!(".{}", std::process::id()));
        let temporary = path.with_file_name(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        Ok(Self { file, temporary, path: path.to_owned() })
    }

    /// It is whole.
    pub(super) fn replace(self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.temporary, &self.path)
    }
}

impl Write for Replacing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Replacing {
    fn drop(&mut self) {
        // Gone already when it was whole.
        let _ = fs::remove_file(&self.temporary);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_long_log_of_records_is_taken_though_its_lines_begin_as_documents_do() {
        let record = format!("{{\"verb\":\"ADD\",\"message\":\"{}\"}}\n", "x".repeat(200));
        let log = record.repeat(LONGEST_DOCUMENT / record.len() + 2);
        let cut = format!("{{\"verb\":\"AD\n{log}");
        let one = format!("{{\"a\":\"{}\"}}\n", "x".repeat(LONGEST_DOCUMENT));
        let pretty = format!("{{\n{}}}\n", "  \"a\": {},\n".repeat(LONGEST_DOCUMENT / 8));
        let taken = |name: &str, text: &str| {
            let mut archive = Archive::new(Vec::new());
            archive.text(name, text).unwrap();
            assert_eq!(archive.names.len() + archive.missing.len(), 1, "{:?}", archive.missing);
            archive.missing.is_empty()
        };
        for (text, expected) in [(&log, true), (&cut, true), (&one, false), (&pretty, false)] {
            assert_eq!(taken("state/verbs.log", text), expected, "{}", &text[..40]);
            assert!(!taken("agent/verbs.json", text), "{}", &text[..40]);
        }
    }

    #[test]
    fn of_a_long_text_the_first_whole_lines_are_taken_and_of_a_long_document_nothing_and_it_is_said() {
        let mut archive = Archive::new(Vec::new());
        let line = format!("{}\n", "ä".repeat(50));
        archive.text("long.txt", &line.repeat(LONGEST / line.len() + 10)).unwrap();
        archive.text("one-line.txt", &"x".repeat(LONGEST + 1)).unwrap();
        archive.text("long.json", &format!("{{\"a\":\"{}\"}}", "x".repeat(LONGEST_DOCUMENT))).unwrap();
        archive.text("short.json", "{}").unwrap();
        archive.readme("Head").unwrap();
        let tar = archive.finish().unwrap();
        let mut lengths = Vec::new();
        let mut readme = String::new();
        for entry in tar::Archive::new(tar.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            lengths.push(usize::try_from(entry.size()).unwrap());
            readme.clear();
            entry.read_to_string(&mut readme).unwrap();
        }
        let whole = LONGEST / line.len() * line.len();
        assert_eq!(lengths[..3], [whole, 0, 2]);
        for said in [
            format!("long.txt: all but the first {whole} of "),
            format!("one-line.txt: all but the first 0 of {} bytes", LONGEST + 1),
            format!("long.json: it is {} bytes long, too long for a bundle", LONGEST_DOCUMENT + 8),
        ] {
            assert!(readme.contains(&said), "{said} is not in\n{readme}");
        }
    }
}
