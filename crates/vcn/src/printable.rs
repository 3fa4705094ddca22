//! Text of documents for a terminal: without control characters, so that it neither moves the cursor nor forges a line.

use std::borrow::Cow;

/// The text with its control characters, and those that reorder or break lines, as escapes (`\n`, `\u{1b}`).
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match is_escaped(char) {
            true => escaped.extend(char.escape_default()),
            false => escaped.push(char),
        }
    }
    Cow::Owned(escaped)
}

/// Control characters (C0, DEL, C1), line and paragraph separators, and marks that are invisible or change the direction of what
/// follows. Joiners (U+200C, U+200D) stay, because some languages need them.
fn is_escaped(char: char) -> bool {
    let is_mark = matches!(
        char,
        '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    );
    char.is_control() || is_mark
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_escapes_and_all_else_stays() {
        for (text, shown) in [
            ("NativePodNetwork is BACKOFF: größer “10”", "NativePodNetwork is BACKOFF: größer “10”"),
            ("\x1b[2Jready\r\nyes\x07", "\\u{1b}[2Jready\\r\\nyes\\u{7}"),
            ("a\u{9b}31mb\u{7f}", "a\\u{9b}31mb\\u{7f}"),
            ("\u{202e}txt\u{2028}", "\\u{202e}txt\\u{2028}"),
            ("re\u{200b}ady\u{feff}\u{2060}", "re\\u{200b}ady\\u{feff}\\u{2060}"),
            ("می\u{200c}خواهم", "می\u{200c}خواهم"),
        ] {
            assert_eq!(printable(text), shown);
        }
        assert!(matches!(printable("plain"), Cow::Borrowed(_)));
    }
}
