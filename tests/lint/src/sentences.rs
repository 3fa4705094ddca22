//! Long sentences of documents, in the tables that tests write, too: at most 30 words, so that a reader understands each of them
//! on the first reading.

use crate::finding::Finding;
use crate::source::line_of;
use crate::tree::Tree;

/// Words of a sentence. Writers aim at 25.
const MAX_WORDS: usize = 30;

/// Stands for a span of code, which is one word.
const CODE: &str = "CODE";

/// Every sentence that is too long.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let finding = |file: &str, text: &str, (at, words): (usize, usize)| {
        let message = format!("a sentence of {words} words, more than {MAX_WORDS}: split it");
        Finding::new("sentences", format!("{file}:{}", line_of(text, at)), message)
    };
    let files = tree.with_extension("md").map(|(file, text)| (file.display().to_string(), text));
    files
        .flat_map(|(file, text)| long(text).into_iter().map(|it| finding(&file, text, it)).collect::<Vec<_>>())
        .collect()
}

/// Where long sentences begin their paragraph, item or cell, and their words.
fn long(text: &str) -> Vec<(usize, usize)> {
    let lengths = pieces(text).into_iter().flat_map(|(at, piece)| lengths(&piece).into_iter().map(move |it| (at, it)));
    lengths.filter(|(_, words)| *words > MAX_WORDS).collect()
}

/// Paragraphs, headings, items of lists and cells of tables, without blocks of code.
fn pieces(text: &str) -> Vec<(usize, String)> {
    let (mut pieces, mut is_open, mut in_block, mut at) = (Vec::<(usize, String)>::new(), false, false, 0);
    for line in text.split_inclusive('\n') {
        let shown = line.trim();
        if shown.starts_with("```") {
            in_block = !in_block;
            is_open = false;
        } else if in_block || shown.is_empty() || shown.starts_with("<!--") {
            is_open = false;
        } else if shown.starts_with('|') {
            pieces.extend(shown.split('|').map(|cell| (at, cell.to_owned())));
            is_open = false;
        } else if let Some(item) = item(shown) {
            pieces.push((at, item.to_owned()));
            is_open = !shown.starts_with('#');
        } else if let Some((_, piece)) = pieces.last_mut().filter(|_| is_open) {
            piece.push(' ');
            piece.push_str(shown);
        } else {
            pieces.push((at, shown.to_owned()));
            is_open = true;
        }
        at += line.len();
    }
    pieces
}

/// The text of a line that begins an item of a list, or is a heading.
fn item(line: &str) -> Option<&str> {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = (number.len() < line.len()).then(|| number.strip_prefix(". ")).flatten();
    line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")).or_else(|| line.strip_prefix('#')).or(numbered)
}

/// The words of each sentence. A break of a line and a dot between links end a sentence, too.
fn lengths(piece: &str) -> Vec<usize> {
    let plain = plain(piece).replace("<br>", " · ");
    let (mut lengths, mut words, mut is_list) = (Vec::new(), 0, false);
    for token in plain.split_whitespace() {
        let word = token.trim_matches(|c: char| !c.is_alphanumeric());
        // Spans of code with commas between them are one name.
        let is_next_of_list = is_list && word == CODE;
        words += usize::from(!word.is_empty() && !is_next_of_list);
        is_list = word == CODE && token.ends_with([',', ';']);
        if token == "·" || token.trim_end_matches([')', '*', '"', '”']).ends_with(['.', '!', '?']) {
            lengths.push(std::mem::take(&mut words));
        }
    }
    lengths.extend((words > 0).then_some(words));
    lengths
}

/// The text that a reader sees: a link is its label, a span of code one word.
fn plain(piece: &str) -> String {
    let spans = piece.split('`').enumerate().map(|(number, part)| if number % 2 == 1 { CODE } else { part });
    let text: String = spans.collect();
    let mut parts = text.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |shown, part| shown + part.split_once(')').map_or(part, |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sentence_is_found_in_its_piece() {
        let words = |count: usize| vec!["word"; count].join(" ");
        for (text, found) in [
            (format!("{}.\n\n{}.\n", words(30), words(31)), vec![(152, 31)]),
            (format!("{}. {}\n{}.", words(3), words(15), words(15)), vec![]),
            (format!("- {}\n  {}\n- {}\n", words(20), words(11), words(30)), vec![(0, 31)]),
            (format!("| {} | {} |\n", words(30), words(31)), vec![(0, 31)]),
            (format!("<!-- begin: a -->\n| {} |\n", words(31)), vec![(18, 31)]),
            (format!("```\n{}\n```\n# {}\n{}\n", words(31), words(5), words(29)), vec![]),
        ] {
            assert_eq!(long(&text), found, "{text}");
        }
    }

    #[test]
    fn spans_and_links_count_as_a_reader_sees_them() {
        assert_eq!(lengths("Run `kubectl get nodes -o wide`, then [read the page](a/b.md#c)."), [6]);
        assert_eq!(lengths("The keys `a`, `b`; `c` are new (since 1.2). So are [x](y) · [z](y)<br>`d`"), [7, 3, 1, 1]);
    }
}
