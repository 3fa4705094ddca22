//! Looks ahead: whether what a `name` says is a secret's name, and whether the name of a `value` comes behind it.
//!
//! Such a look goes over text that is gone through anyway, and over the same again for the next name or value in it. So all
//! looks together have a bound; where it is reached, everything counts as a secret's.

use super::object::{Line, Object};
use super::value::{is_of_name, measure, split, value_after};
use super::{is_name, is_value, names_secret};

/// How far one look goes, in bytes.
const FARTHEST: usize = 16 << 10;

/// How many other values are passed over meanwhile, of objects in its own or in strings. Then it counts as a secret's.
const MOST_PASSED: usize = 16;

/// How far all looks together go, in bytes for each byte of the text. Lists of names and values take two or three.
const PER_BYTE: usize = 8;

/// The looks into one text.
#[derive(Debug)]
pub(super) struct Ahead {
    /// How far they went together, in bytes.
    gone: usize,
    most: usize,
}

impl Ahead {
    pub(super) const fn of(text: &str) -> Self {
        Self { gone: 0, most: FARTHEST + text.len().saturating_mul(PER_BYTE) }
    }

    /// Whether what a `name` or `key` stands before is the name of a secret.
    pub(super) fn says_secret(&mut self, after: &str) -> bool {
        if self.gone > self.most {
            return true;
        }
        let near = near(after);
        let Some(value) = value_after(near, false) else { return false };
        let (open, length) = measure(value);
        self.gone += near.len() - value.len() + open + length;
        names_secret(split(value.get(open..).unwrap_or_default(), length).0)
    }

    /// Whether the object that a `value` is in, which begins at that column, says only behind it that it is a secret's.
    pub(super) fn is_named_behind(&mut self, after: &str, column: usize) -> bool {
        if self.gone > self.most {
            return true;
        }
        let near = near(after);
        let Some(value) = value_after(near, false) else { return false };
        let (open, length) = measure(value);
        // What opens it closes it.
        let mut rest = value.get(open + length + open..).unwrap_or_default();
        self.gone += near.len() - rest.len();
        let (mut object, mut line) = (Object::new(column), Line::new(rest));
        let mut passed = 0;
        while let Some((before, from)) = rest.find(is_of_name).and_then(|at| rest.split_at_checked(at)) {
            let (name, after) = split(from, from.find(|letter| !is_of_name(letter)).unwrap_or(from.len()));
            self.gone += rest.len() - after.len();
            line.reach(from);
            if !object.goes_on(before) || object.is_next(name, &line) {
                return false;
            }
            if is_value(name) {
                if value_after(after, false).is_some() && object.is_key(after) {
                    return false;
                }
                passed += 1;
            }
            if passed > MOST_PASSED || is_name(name) && self.says_secret(after) {
                return true;
            }
            object.goes_on(name);
            rest = after;
        }
        false
    }
}

fn near(text: &str) -> &str {
    split(text, text.floor_char_boundary(FARTHEST)).0
}

#[cfg(test)]
mod tests {
    use super::super::pairs::take_out_by;
    use super::*;

    /// How often a secret is taken out, and how far was looked ahead for it.
    fn work(text: &str) -> (usize, usize) {
        let (mut count, mut ahead) = (0, Ahead::of(text));
        take_out_by(text, &mut count, &mut ahead);
        (count, ahead.gone)
    }

    #[test]
    fn a_text_of_nothing_but_unclosed_values_is_looked_at_so_many_times_and_no_more() {
        const LENGTH: usize = 1 << 18;
        let values = |nested: usize| format!("{}{}", "value:{ ".repeat(nested), "}".repeat(nested));
        for piece in [
            "value:{ ",
            "name:{ ",
            "key:[",
            "value:\"",
            "name:'",
            "value:1 {",
            "value: |\n ",
            &format!("value:1 {}", "name:{ ".repeat(2000)),
            &values(1000),
        ] {
            let text = piece.repeat(LENGTH / piece.len());
            let (count, gone) = work(&text);
            let most = PER_BYTE * text.len() + 3 * FARTHEST;
            assert!(gone < most, "{} MiB for one of {:.8}", gone >> 20, piece);
            let has_values = piece.contains("value");
            assert!(gone < most / 2 || count > 0 || !has_values, "who is not looked at counts as secret: {piece:.8}");
        }
    }

    #[test]
    fn lists_of_names_and_values_are_looked_at_a_few_times() {
        let text =
            format!("[{}", r#"{"name":"A","value":"b"},{"value":{"x":"b"},"note":"c","key":"A"},"#.repeat(10_000));
        let (count, gone) = work(&text);
        assert_eq!(count, 0);
        assert!(gone < 3 * text.len(), "{} times", gone / text.len());
    }
}
