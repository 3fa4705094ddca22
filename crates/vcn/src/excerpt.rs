//! The beginning of a foreign text: enough to recognize it, and no more than a person reads.

use std::borrow::Cow;

/// At most `limit` characters of the text, and a mark where the rest is missing.
pub fn excerpt(text: &str, limit: usize) -> Cow<'_, str> {
    match text.char_indices().nth(limit) {
        Some((end, _)) => Cow::Owned(format!("{}…", text.get(..end).unwrap_or_default())),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_text_has_ellipsis_and_short_text_is_unchanged() {
        assert_eq!(excerpt("größer", 6), "größer");
        assert_eq!(excerpt("größer", 4), "größ…");
        assert_eq!(excerpt("", 0), "");
    }
}
