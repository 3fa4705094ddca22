//! Values of kernel settings: their forms, and when two texts are the same value.

use crate::refusal::Refusal;

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A whole number within bounds.
    Number(i64, i64),
    /// 0, or a whole number within bounds.
    ZeroOr(i64, i64),
    /// So many whole numbers, each at least the second one here and no less than the one before it, with white space between them.
    Numbers(usize, u64),
    /// The first and the last of at least [`PORTS_MIN`] unprivileged ports.
    PortRange,
    /// A word, such as the name of a queueing discipline.
    Word,
    /// Ports and ranges of ports with commas between them.
    Ports,
    /// What the kernel accepts: keys that a node adds to the table.
    Any,
}

/// A node opens connections from ports of its range: with few, it can open none.
const PORTS_MIN: u64 = 10_000;
/// The most ports that a policy reserves, for the same reason.
const RESERVED_PORTS_MAX: u64 = 16_384;

impl Form {
    /// Refuses a value that the kernel would refuse.
    ///
    /// # Errors
    /// If the value has another form.
    pub fn check(self, value: &str) -> Result<(), Refusal> {
        let is_valid = match self {
            Self::Number(least, most) => value.trim().parse().is_ok_and(|number: i64| (least..=most).contains(&number)),
            Self::ZeroOr(least, most) => {
                value.trim().parse().is_ok_and(|number: i64| number == 0 || (least..=most).contains(&number))
            }
            Self::Numbers(count, least) => {
                numbers(value).is_some_and(|it| it.len() == count && it.is_sorted() && it.iter().all(|it| *it >= least))
            }
            Self::PortRange => numbers(value).is_some_and(|it| match it[..] {
                [first, last] => first >= 1024 && last <= u16::MAX.into() && last >= first + PORTS_MIN,
                _ => false,
            }),
            Self::Word => {
                !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
            }
            Self::Ports => {
                value.split(',').map(ports).sum::<Option<u64>>().is_some_and(|count| count <= RESERVED_PORTS_MAX)
            }
            Self::Any => !value.trim().is_empty(),
        };
        match is_valid {
            true => Ok(()),
            false => Err(Refusal { reason: "the value has another form", next_step: self.expected() }),
        }
    }

    /// What is expected, in words.
    pub const fn expected(self) -> &'static str {
        match self {
            Self::Number(..) | Self::ZeroOr(..) => "Write a whole number within the bounds of docs/node-policies.md.",
            Self::Numbers(..) => {
                "Write as many whole numbers as the kernel shows, ascending, with spaces between them."
            }
            Self::PortRange => "Write two ports from 1024 on, at least 10000 apart, with a space between them.",
            Self::Word => "Write one word of letters, digits, _ and -.",
            Self::Ports => "Write ports and ranges with commas between them, such as 8080,9000-9100.",
            Self::Any => "Write a value.",
        }
    }
}

/// Whether two texts are the same value: the kernel separates numbers by tabs.
pub fn is_same(one: &str, other: &str) -> bool {
    one.split_whitespace().eq(other.split_whitespace())
}

/// The choice in a text like `always [madvise] never`.
pub fn chosen(text: &str) -> Option<&str> {
    text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}

fn numbers(value: &str) -> Option<Vec<u64>> {
    value.split_whitespace().map(|number| number.parse().ok()).collect()
}

/// How many ports a part of a list names; `None` if it is anything else.
fn ports(part: &str) -> Option<u64> {
    let port = |text: &str| text.parse::<u16>().ok().map(u64::from);
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    port(first).zip(port(last)).and_then(|(first, last)| Some(last.checked_sub(first)? + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_of_another_form_is_refused() {
        for (form, good, bad) in [
            (
                Form::Number(0, 100),
                &["0", "100", " 7 "][..],
                &["-1", "101", "", "1 2", "x", "9999999999999999999999"][..],
            ),
            (Form::ZeroOr(30, 100), &["0", "30", "100"], &["1", "29", "101", "-1"]),
            (
                Form::Numbers(3, 1),
                &["4096 131072 6291456", "1\t2\t3"],
                &["1 2", "1 2 3 4", "1 2 x", "-1 2 3", "", "3 2 1", "0 1 2"],
            ),
            (Form::PortRange, &["1024 65535", "32768\t60999"], &["1 1", "1 65535", "1024 2000", "60000 70000", "1024"]),
            (Form::Word, &["bbr", "fq_codel"], &["", "a b", "a/b", "a\n"]),
            (Form::Ports, &["80", "80,90-95"], &["", "80,", "95-90", "70000", "a", "1-65535"]),
            (Form::Any, &["x"], &["", " "]),
        ] {
            good.iter().for_each(|value| assert_eq!(form.check(value), Ok(()), "{form:?} {value:?}"));
            bad.iter().for_each(|value| assert!(form.check(value).is_err(), "{form:?} {value:?}"));
        }
    }

    #[test]
    fn choice_is_the_word_in_brackets() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("always madvise never"), None);
    }

    #[test]
    fn values_are_compared_without_their_white_space() {
        assert!(is_same("4096\t131072\t6291456", "4096 131072 6291456"));
        assert!(!is_same("1 2", "12"));
    }
}
