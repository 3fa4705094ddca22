//! Cells: what they show, how short, and in which color.

use command::page::{Color, age};

use crate::answer::Style;

/// The color of a cell with one of these words.
pub(crate) fn paint(cell: &str) -> Option<Color> {
    Some(match cell {
        "Critical" | "False" | "no" => Color::Red,
        "Warning" | "Unknown" => Color::Yellow,
        "Healthy" | "True" | "yes" => Color::Green,
        _ => return None,
    })
}

/// A cell, or a dash where there is nothing to show.
pub(crate) fn or_dash(cell: impl Into<String>) -> String {
    let cell = cell.into();
    if cell.is_empty() { "-".to_owned() } else { cell }
}

/// An OCID; its end alone tells those of one region apart.
pub(crate) fn ocid(ocid: &str, style: Style) -> String {
    const END: usize = 8;
    let length = ocid.chars().count();
    if style.wide || length <= END {
        return or_dash(ocid);
    }
    format!("…{}", ocid.chars().skip(length - END).collect::<String>())
}

/// A text that is cut unless the table is wide.
pub(crate) fn cut(text: &str, most: usize, style: Style) -> String {
    if style.wide { text.to_owned() } else { vcn::excerpt(text, most).into_owned() }
}

/// For how long something is so, at the time of the table.
pub(crate) fn since(unix_millis: u64, style: Style) -> String {
    // A time that is absent, or null.
    match unix_millis {
        0 => "-".to_owned(),
        _ => age(style.now_unix_millis.saturating_sub(unix_millis) / 1000),
    }
}

/// A number of things; the plural has an s.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_short_unless_wide() {
        let narrow = Style { wide: false, now_unix_millis: 90_000 };
        let wide = Style { wide: true, ..narrow };
        let long = "ocid1.instance.oc1.iad.abcdefghijkl";
        assert_eq!((ocid(long, narrow).as_str(), ocid(long, wide).as_str()), ("…efghijkl", long));
        assert_eq!((ocid("", narrow).as_str(), cut("äöü", 2, narrow).as_str()), ("-", "äö…"));
        let ages = [since(30_000, narrow), since(91_000, narrow), since(0, narrow)];
        assert_eq!(ages.each_ref().map(String::as_str), ["60 s", "0 s", "-"]);
    }
}
