//! Comments and literals of Rust source, and the source with these blanked out, so that a plain search finds code and nothing
//! else. Not a parser: it knows just enough of the language to tell code from text.

use std::ops::Range;

/// What is not code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextKind {
    /// One line, or a block.
    Comment,
    /// A string or a character.
    Literal,
}

/// The comments and literals, in their order.
pub fn texts(text: &str) -> impl Iterator<Item = (TextKind, Range<usize>)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            let begin = at;
            let (kind, end) = match bytes.get(at..).unwrap_or_default() {
                [b'/', b'/', ..] => (TextKind::Comment, line_comment(bytes, at)),
                [b'/', b'*', ..] => (TextKind::Comment, block_comment(bytes, at)),
                [b'"', ..] => (TextKind::Literal, string(bytes, at)),
                [b'\'', ..] => (TextKind::Literal, character(bytes, at)),
                [b'r', b'"' | b'#', ..] if starts_word(bytes, at) => (TextKind::Literal, raw_string(bytes, at)),
                _ => (TextKind::Literal, None),
            };
            at = end.unwrap_or(at + 1);
            if end.is_some() {
                return Some((kind, begin..at));
            }
        }
        None
    })
}

/// A copy of `text` of the same length in which comments, strings and characters are spaces. Line ends stay.
#[must_use]
pub fn blank(text: &str) -> String {
    let mut code = text.as_bytes().to_vec();
    texts(text).for_each(|(_, range)| erase(&mut code, range));
    // Whole characters were erased, or ASCII: what is left is as valid as the input was.
    String::from_utf8(code).unwrap_or_default()
}

/// The line, counted from 1, that byte `at` is on.
#[must_use]
pub fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

fn starts_word(bytes: &[u8], at: usize) -> bool {
    // `br"…"` too: its b stays, which is harmless.
    let before = at.checked_sub(1).and_then(|at| bytes.get(at));
    !before.is_some_and(|b| (b.is_ascii_alphanumeric() && *b != b'b') || *b == b'_')
}

fn line_comment(bytes: &[u8], at: usize) -> Option<usize> {
    Some(find(bytes, at, b"\n").unwrap_or(bytes.len()))
}

fn block_comment(bytes: &[u8], at: usize) -> Option<usize> {
    let mut depth = 0usize;
    let mut at = at;
    loop {
        match bytes.get(at..).unwrap_or_default() {
            [] => return Some(bytes.len()),
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth.saturating_sub(1), at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

fn string(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        match bytes.get(at)? {
            b'\\' => at += 2,
            b'"' => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// A character literal; `None` for a lifetime, which is code.
fn character(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at + 1) == Some(&b'\\') {
        return find(bytes, at + 3, b"'").map(|quote| quote + 1);
    }
    let text = std::str::from_utf8(bytes.get(at + 1..)?).ok()?;
    let length = text.chars().next()?.len_utf8();
    (bytes.get(at + 1 + length) == Some(&b'\'')).then_some(at + 2 + length)
}

/// A raw string; `None` for a raw identifier such as `r#type`.
fn raw_string(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes.get(at + 1..)?.iter().take_while(|byte| **byte == b'#').count();
    if bytes.get(at + 1 + hashes) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    find(bytes, at + 2 + hashes, &close).map(|start| start + close.len())
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    bytes.get(from..)?.windows(what.len()).position(|window| window == what).map(|at| from + at)
}

fn erase(code: &mut [u8], range: Range<usize>) {
    for byte in code.get_mut(range).into_iter().flatten().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn blanks(text: &str, code: &str) {
        assert_eq!(blank(text), code);
        assert_eq!(code.len(), text.len());
    }

    #[test]
    fn comments_are_blanked() {
        blanks("a // mod b;\nc", "a          \nc");
        blanks("a /* x /* y */ z */ b", "a                   b");
    }

    #[test]
    fn literals_are_blanked() {
        for literal in [r#""mod \" b""#, r###"r#"x " y"#"###, r"'{'", r"'\''", r"'\u{7d}'", "'é'"] {
            blanks(&format!("a({literal}) c"), &format!("a({}) c", " ".repeat(literal.len())));
        }
    }

    #[test]
    fn lifetimes_and_raw_identifiers_are_code() {
        blanks("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}");
        blanks("r#type", "r#type");
    }

    #[test]
    fn lines_are_counted_from_one() {
        assert_eq!(line_of("a\nb\nc", 4), 3);
    }
}
