//! Values of kernel settings: their forms, and when two texts are the same value.

use crate::keys::Refusal;

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A whole number within bounds.
    Number(i64, i64),
    /// So many whole numbers, each zero at least, with white space between them.
    Numbers(usize),
    /// A word, such as the name of a queueing discipline.
    Word,
    /// Ports and ranges of ports with commas between them.
    Ports,
    /// What the kernel accepts: keys that a node adds to the table.
    Any,
}

impl Form {
    /// Refuses a value that the kernel would refuse.
    ///
    /// # Errors
    /// If the value has another form.
    pub fn check(self, value: &str) -> Result<(), Refusal> {
        let is_valid = match self {
            Self::Number(least, most) => value.trim().parse().is_ok_and(|number: i64| (least..=most).contains(&number)),
            Self::Numbers(count) => {
                let numbers: Vec<Option<u64>> = value.split_whitespace().map(|number| number.parse().ok()).collect();
                numbers.len() == count && numbers.iter().all(Option::is_some)
            }
            Self::Word => {
                !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
            }
            Self::Ports => value.split(',').all(is_ports),
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
            Self::Number(..) => "Write a whole number within the bounds of docs/node-policies.md.",
            Self::Numbers(_) => "Write as many whole numbers as the kernel shows, with spaces between them.",
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

fn is_ports(part: &str) -> bool {
    let port = |text: &str| text.parse::<u16>().ok();
    match part.split_once('-') {
        Some((first, last)) => port(first).zip(port(last)).is_some_and(|(first, last)| first <= last),
        None => port(part).is_some(),
    }
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
            (Form::Numbers(3), &["4096 131072 6291456", "1\t2\t3"], &["1 2", "1 2 3 4", "1 2 x", "-1 2 3", ""]),
            (Form::Word, &["bbr", "fq_codel"], &["", "a b", "a/b", "a\n"]),
            (Form::Ports, &["80", "80,90-95"], &["", "80,", "95-90", "70000", "a"]),
            (Form::Any, &["x"], &["", " "]),
        ] {
            good.iter().for_each(|value| assert_eq!(form.check(value), Ok(()), "{form:?} {value:?}"));
            bad.iter().for_each(|value| assert!(form.check(value).is_err(), "{form:?} {value:?}"));
        }
    }

    #[test]
    fn values_are_compared_without_their_white_space() {
        assert!(is_same("4096\t131072\t6291456", "4096 131072 6291456"));
        assert!(!is_same("1 2", "12"));
    }
}
