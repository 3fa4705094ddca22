//! The tar: entries are written as they come; README.txt, the last one, lists them and the missing ones.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// The longest entry, in bytes. A longer text is cut, which README.txt says; longer JSON is left out.
pub(super) const LONGEST: usize = 4 << 20;

pub(super) struct Archive<W: Write> {
    tar: tar::Builder<W>,
    /// The names of the entries.
    names: Vec<String>,
    /// Missing entries, and why.
    missing: Vec<(String, String)>,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(to: W) -> Self {
        Self { tar: tar::Builder::new(to), names: Vec::new(), missing: Vec::new() }
    }

    /// Adds a text, cut after the last whole line that fits.
    pub(super) fn text(&mut self, name: &str, text: &str) -> io::Result<()> {
        let length = text.len();
        if length <= LONGEST {
            return self.entry(name, text.as_bytes());
        }
        if Path::new(name).extension().is_some_and(|extension| extension == "json") {
            self.missing(name, &format!("its {length} bytes are too long for a bundle"));
            return Ok(());
        }
        let head = text.get(..text.floor_char_boundary(LONGEST)).unwrap_or_default();
        let lines = head.rfind('\n').and_then(|end| head.get(..=end)).unwrap_or_default();
        self.missing(name, &format!("all but the first {} of {length} bytes", lines.len()));
        self.entry(name, lines.as_bytes())
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

    /// Notes a missing entry.
    pub(super) fn missing(&mut self, name: &str, why: &str) {
        self.missing.push((name.to_owned(), why.to_owned()));
    }

    /// Adds README.txt.
    pub(super) fn readme(&mut self, head: &str) -> io::Result<()> {
        let mut text = format!("{head}\nEntries:\n");
        for name in &self.names {
            let _ = writeln!(text, "  {name}");
        }
        text.push_str(
            "\nNever collected: values of CNI configurations, files of other programs, the metadata service's credentials and\n\
             user data.\n\nMissing:\n",
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

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn long_text_is_cut_at_line_and_long_json_omitted() {
        let mut archive = Archive::new(Vec::new());
        let line = format!("{}\n", "ä".repeat(50));
        archive.text("long.txt", &line.repeat(LONGEST / line.len() + 10)).unwrap();
        archive.text("one-line.txt", &"x".repeat(LONGEST + 1)).unwrap();
        archive.text("long.json", &format!("{{\"a\":\"{}\"}}", "x".repeat(LONGEST))).unwrap();
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
        for line in [
            format!("long.txt: all but the first {whole} of "),
            format!("one-line.txt: all but the first 0 of {} bytes", LONGEST + 1),
            format!("long.json: its {} bytes are too long for a bundle", LONGEST + 8),
        ] {
            assert!(readme.contains(&line), "{line} is not in\n{readme}");
        }
    }
}
