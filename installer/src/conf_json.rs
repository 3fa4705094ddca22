//! JSON as the runtime reads it: by Go's encoding/json, which takes deeper nesting than serde_json and text that is no
//! Unicode, and refuses numbers that no float64 holds. What it takes must not be called damaged, nor what it refuses sound.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, IgnoredAny, Visitor};
use serde::{Deserialize, Deserializer};

/// Go's `maxNestingDepth`.
const DEEPEST: usize = 10_000;

/// A file's text. What is no Unicode is replaced: within a string that is as good as what was there, elsewhere it is as
/// wrong.
pub(crate) fn text(contents: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(contents)
}

/// Why it is no JSON for the runtime; nothing where it is. Without recursion, however deep it is.
pub(crate) fn complaint(text: &str) -> Option<String> {
    if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
        return Some(error.to_string());
    }
    let mut depth: usize = 0;
    let mut rest = text;
    while let Some((at, found)) = rest.char_indices().find(|(_, found)| "\"[{]}-0123456789".contains(*found)) {
        rest = rest.get(at..).unwrap_or_default();
        let length = match found {
            '"' => string_length(rest),
            '-' | '0'..='9' => {
                let length = rest.find(|next| !"+-.eE0123456789".contains(next)).unwrap_or(rest.len());
                let number = rest.get(..length).unwrap_or_default();
                if number.parse::<f64>().is_ok_and(f64::is_infinite) {
                    return Some(format!("the number {number} is too large"));
                }
                length
            }
            '[' | '{' if depth == DEEPEST => return Some(format!("it is nested deeper than {DEEPEST} levels")),
            '[' | '{' => {
                depth += 1;
                1
            }
            _ => {
                depth = depth.saturating_sub(1);
                1
            }
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    None
}

/// The value of a text that is a JSON string.
pub(crate) fn string(text: &str) -> Option<String> {
    serde_json::from_str(text).ok().map(|Lossy(value)| value)
}

/// With its quotes.
fn string_length(text: &str) -> usize {
    let mut escaped = true;
    let end = text.char_indices().find(|(_, found)| {
        let ends = *found == '"' && !escaped;
        // The first quote opens it.
        escaped = *found == '\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

/// A string in which halves of surrogate pairs are replaced.
pub(crate) struct Lossy(pub(crate) String);

impl<'de> Deserialize<'de> for Lossy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Lossy;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Lossy, E> {
                Ok(Lossy(value.to_owned()))
            }

            fn visit_bytes<E: Error>(self, value: &[u8]) -> Result<Lossy, E> {
                Ok(Lossy(String::from_utf8_lossy(value).into_owned()))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Go 1.26's `json.Unmarshal` into a `map[string]any` answered to the same.
    #[test]
    fn what_go_takes_is_taken_and_what_it_refuses_is_refused() {
        let nested = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1));
        let (deepest, too_deep) = (nested(DEEPEST), nested(DEEPEST + 1));
        for (contents, refused) in [
            (deepest.as_bytes(), None),
            (too_deep.as_bytes(), Some("it is nested deeper than 10000 levels")),
            (br#"{"a":123456789012345678901234567890,"b":1e-999,"c":-0.5e+3}"#, None),
            (br#"{"a":[1,-1e400]}"#, Some("the number -1e400 is too large")),
            (br#"{"a":1e999}"#, Some("the number 1e999 is too large")),
            (br#"{"a":"1e999 \" [[[ 1e999"}"#, None),
            (br#"{"a\ud800":"\ud800"}"#, None),
            (b"{\"a\":\"\xff\"}", None),
            (b"{\"a\":1\xff}", Some("expected `,` or `}`")),
            (b"\xef\xbb\xbf{}", Some("expected value")),
            (b"{\"a\":\"\x01\"}", Some("control character")),
            (b"{} {}", Some("trailing characters")),
            (b"{}\0", Some("trailing characters")),
            (b"null", None),
            (b"", Some("EOF")),
        ] {
            let text = text(contents);
            let said = complaint(&text);
            let what = text.chars().take(40).collect::<String>();
            match refused {
                None => assert_eq!(said, None, "{what}"),
                Some(why) => assert!(said.as_ref().is_some_and(|said| said.contains(why)), "{what}: {said:?}"),
            }
        }
    }

    #[test]
    fn strings_are_read_as_go_reads_them() {
        assert_eq!(string(r#""br\u0069dge""#), Some("bridge".to_owned()));
        assert!(string(r#""a\ud800""#).unwrap().starts_with("a\u{fffd}"));
        assert_eq!(string("1"), None);
        assert_eq!(string("null"), None);
    }
}
