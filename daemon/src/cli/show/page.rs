//! Text for a terminal, line by line. Control characters in a line are escaped: names and messages come from documents.

use std::fmt::Display;

use vcn::printable;

#[derive(Debug, Default)]
pub(super) struct Page(String);

impl Page {
    pub(super) fn line(&mut self, line: impl Display) {
        self.0.push_str(printable(&line.to_string()).trim_end());
        self.0.push('\n');
    }

    /// A name and its value.
    pub(super) fn field(&mut self, name: &str, value: impl Display) {
        self.line(format_args!("{name:<20}{value}"));
    }

    /// Left-aligned columns as wide as their widest cell.
    pub(super) fn columns(&mut self, head: &[&str], rows: impl Iterator<Item = Vec<String>>) {
        let head = head.iter().map(|cell| (*cell).to_owned()).collect();
        let escaped = |row: Vec<String>| row.iter().map(|cell| printable(cell).into_owned()).collect();
        let rows: Vec<Vec<String>> = [head].into_iter().chain(rows).map(escaped).collect();
        let width = |column| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
        for row in &rows {
            let cells = row.iter().enumerate().map(|(at, cell)| format!("{cell:<width$}", width = width(at)));
            self.line(cells.collect::<Vec<_>>().join("  "));
        }
    }

    pub(super) fn into_text(self) -> String {
        self.0
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
}
