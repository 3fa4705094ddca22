//! Text for a terminal, line by line. Control characters in a line are escaped: names and messages come from documents.

use std::borrow::{Borrow, Cow};
use std::fmt::Display;

use vcn::printable;

/// A text that grows by lines.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
    paint: Option<fn(&str) -> Option<Color>>,
}

/// A color, as the number of its escape sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// Marks a problem, in red.
    Red = 31,
    /// For what is fine.
    Green = 32,
    /// For warnings and what is not known.
    Yellow = 33,
}

impl Page {
    /// A page for a terminal with colors: `paint` chooses the color of a cell or a word.
    pub fn colored(paint: fn(&str) -> Option<Color>) -> Self {
        Self { text: String::new(), paint: Some(paint) }
    }

    /// Appends a line of text.
    pub fn line(&mut self, line: impl Display) {
        self.text.push_str(printable(&line.to_string()).trim_end());
        self.text.push('\n');
    }

    /// A name and its value.
    pub fn field(&mut self, name: &str, value: impl Display) {
        let value = value.to_string();
        let value = printable(&value);
        let line = format!("{:<20}{}", printable(name), self.painted(&value, value.clone()));
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// Left-aligned columns as wide as their widest cell.
    pub fn columns(&mut self, head: &[&str], rows: impl Iterator<Item = Vec<String>>) {
        let head = head.iter().map(|cell| (*cell).to_owned()).collect();
        let escaped = |row: Vec<String>| row.iter().map(|cell| printable(cell).into_owned()).collect();
        let rows: Vec<Vec<String>> = [head].into_iter().chain(rows).map(escaped).collect();
        let mut widths = Vec::new();
        for row in &rows {
            widths.resize(widths.len().max(row.len()), 0);
            widths.iter_mut().zip(row).for_each(|(width, cell)| *width = cell.chars().count().max(*width));
        }
        for row in &rows {
            let mut line = String::new();
            for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let padded = if at + 1 == row.len() { cell.clone() } else { format!("{cell:<width$}  ") };
                line.push_str(&self.painted(cell, padded.into()));
            }
            self.text.push_str(line.trim_end());
            self.text.push('\n');
        }
    }

    /// The text so far.
    pub fn into_text(self) -> String {
        self.text
    }

    fn painted<'a>(&self, word: &str, text: Cow<'a, str>) -> Cow<'a, str> {
        match self.paint.and_then(|paint| paint(word)) {
            Some(color) => format!("\u{1b}[{}m{text}\u{1b}[0m", color as u8).into(),
            None => text,
        }
    }
}

/// A duration in its largest unit of which there are two: `90 s`, `2 min`.
pub fn age(seconds: impl Borrow<u64>) -> String {
    match *seconds.borrow() {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds / 60),
        seconds @ 7200..=172_799 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut page = Page::default();
        let rows = [vec!["x".into(), "long cell".into()], vec!["y\u{1b}".into(), "z".into()]];
        page.columns(&["A", "B"], rows.into_iter());
        assert_eq!(page.into_text(), "A        B\nx        long cell\ny\\u{1b}  z\n");
    }

    #[test]
    fn control_characters_are_escaped() {
        let mut page = Page::default();
        page.line("\u{1b}[2J\nready  yes\u{9b}");
        page.field("a", "\n");
        assert_eq!(page.into_text(), "\\u{1b}[2J\\nready  yes\\u{9b}\na                   \\n\n");
    }

    #[test]
    fn age_has_the_largest_unit_below_two() {
        assert_eq!([5, 300, 7200, 200_000].map(age), ["5 s", "5 min", "2 h", "2 d"]);
    }

    #[test]
    fn colors_do_not_shift_columns() {
        let mut page = Page::colored(|cell| (cell == "bad").then_some(Color::Red));
        page.columns(&["A", "B"], [vec!["bad".into(), "x".into()]].into_iter());
        assert_eq!(page.into_text(), "A    B\n\u{1b}[31mbad  \u{1b}[0mx\n");
    }
}
