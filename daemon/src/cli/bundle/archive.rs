//! The tar: entries are written as they come; README.txt, the last one, lists them and the missing ones.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::redaction::{Redactions, Redactor};

/// The longest entry, in bytes. A longer one is left out, which README.txt says.
const MAX_ENTRY_BYTES: usize = 4 << 20;

pub(super) struct Archive<W: Write> {
    tar: tar::Builder<W>,
    redactor: Redactor,
    names: Vec<String>,
    /// Missing entries, and why.
    missing: Vec<(String, String)>,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(to: W) -> io::Result<Self> {
        let redactor = Redactor::new().map_err(io::Error::other)?;
        Ok(Self { tar: tar::Builder::new(to), redactor, names: Vec::new(), missing: Vec::new() })
    }

    /// Adds a text without its secrets, unless it is too long.
    pub(super) fn text(&mut self, name: &str, text: &str) -> io::Result<()> {
        if text.len() <= MAX_ENTRY_BYTES {
            let text = self.redactor.text(text);
            return self.entry(name, text.as_bytes());
        }
        self.missing(name, &format!("its {} bytes are too long for a bundle", text.len()));
        Ok(())
    }

    /// Adds a value as JSON, or the reason why it is missing.
    pub(super) fn json(&mut self, name: &str, value: Result<impl Serialize, String>) -> io::Result<()> {
        self.result(
            name,
            value.and_then(|value| serde_json::to_string_pretty(&value).map_err(|error| error.to_string())),
        )
    }

    /// Adds a text, or the reason why it is missing.
    pub(super) fn result(&mut self, name: &str, text: Result<String, String>) -> io::Result<()> {
        match text {
            Ok(text) => self.text(name, &text),
            Err(why) => {
                self.missing(name, &why);
                Ok(())
            }
        }
    }

    pub(super) fn missing(&mut self, name: &str, why: &str) {
        self.missing.push((name.to_owned(), why.to_owned()));
    }

    pub(super) fn readme(&mut self, head: &str) -> io::Result<()> {
        let mut text = format!("{head}\nEntries:\n");
        for name in &self.names {
            let _ = writeln!(text, "  {name}");
        }
        let _ = write!(
            text,
            "\nNever collected: values of CNI configurations, files of other programs, the metadata service's credentials and\n\
             user data.\nRedacted: {}.\n\nMissing:\n",
            self.redactor.counts()
        );
        for (name, why) in &self.missing {
            let _ = writeln!(text, "  {name}: {why}");
        }
        text.push_str(if self.missing.is_empty() { "  nothing\n" } else { "" });
        self.entry("README.txt", text.as_bytes())
    }

    /// Returns where it went, and what was redacted.
    pub(super) fn finish(self) -> io::Result<(W, Redactions)> {
        let mut to = self.tar.into_inner()?;
        to.flush()?;
        Ok((to, self.redactor.counts()))
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

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn entry_that_is_too_long_is_missing() {
        let mut archive = Archive::new(Vec::new()).unwrap();
        archive.text("long.txt", &"x".repeat(MAX_ENTRY_BYTES + 1)).unwrap();
        archive.text("short.txt", &"x".repeat(MAX_ENTRY_BYTES)).unwrap();
        archive.readme("Head").unwrap();
        let (tar, _) = archive.finish().unwrap();
        let mut entries = tar::Archive::new(tar.as_slice());
        let mut entries = entries.entries().unwrap().map(Result::unwrap);
        assert_eq!(entries.next().unwrap().size(), MAX_ENTRY_BYTES as u64);
        let mut readme = String::new();
        entries.next().unwrap().read_to_string(&mut readme).unwrap();
        let line = format!("long.txt: its {} bytes are too long for a bundle", MAX_ENTRY_BYTES + 1);
        assert!(readme.contains(&line) && entries.next().is_none(), "{readme}");
    }
}
