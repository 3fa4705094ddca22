//! The annotation [`crate::VNICS_ANNOTATION`] on a Node: the VnicProfiles that it requests, by name.
//!
//! Written `storage,backup` or, as JSON, `["storage","backup"]`. Empty means none. Errors quote the wrong text with its
//! position, because the author sees them in an Event, away from the text.

use thiserror::Error;

use crate::vnic_name::is_dns_label;

/// The most profiles that one Node may request: far more than any shape can carry.
pub const MOST_PROFILES: usize = 16;

/// The most characters of an offending part that an error shows.
const SHOWN: usize = 80;

/// What is wrong with the annotation. Places count characters from 1.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AnnotationError {
    /// A part is no name of a VnicProfile.
    #[error(
        "{part:?} at character {at} is not the name of a VnicProfile: small letters, digits and inner hyphens, 1 to 63 of them"
    )]
    NotAName {
        /// The part.
        part: String,
        /// Where it begins.
        at: usize,
    },
    /// A name is there twice.
    #[error("{name:?} at character {at} is there already")]
    Twice {
        /// The name.
        name: String,
        /// Where the second one begins.
        at: usize,
    },
    /// It begins like a JSON list and is none.
    #[error("{rest:?} at character {at} is not how a JSON list of names goes on: {why}")]
    NotJson {
        /// The text from there on.
        rest: String,
        /// Where it goes wrong.
        at: usize,
        /// The parser's complaint.
        why: String,
    },
    /// An element of the JSON list is no text.
    #[error("element {number} of the JSON list is {value}, not a name in quotes")]
    NotAText {
        /// Which one, from 1.
        number: usize,
        /// It, as JSON.
        value: String,
    },
    /// There are too many.
    #[error("{count} VnicProfiles are named; a Node may ask for {MOST_PROFILES}")]
    TooMany {
        /// How many.
        count: usize,
    },
}

/// The names of the VnicProfiles that a Node asks for, in the order they stand there.
///
/// # Errors
/// When any part of it is wrong: nothing is done by halves, since the rest may not be what was meant either.
pub fn wanted_profiles(annotation: &str) -> Result<Vec<String>, AnnotationError> {
    let parts = if annotation.trim_start().starts_with('[') { json(annotation)? } else { list(annotation) };
    if parts.len() > MOST_PROFILES {
        return Err(AnnotationError::TooMany { count: parts.len() });
    }
    let mut names: Vec<String> = Vec::with_capacity(parts.len());
    for (at, name) in parts {
        if !is_dns_label(&name) {
            return Err(AnnotationError::NotAName { part: shown(&name), at });
        }
        if names.contains(&name) {
            return Err(AnnotationError::Twice { name, at });
        }
        names.push(name);
    }
    Ok(names)
}

/// The parts between commas, each with its place.
fn list(annotation: &str) -> Vec<(usize, String)> {
    if annotation.trim().is_empty() {
        return Vec::new();
    }
    let mut begin = 1;
    let mut parts = Vec::new();
    for part in annotation.split(',') {
        let indent = part.chars().take_while(|c| c.is_whitespace()).count();
        parts.push((begin + indent, part.trim().to_owned()));
        begin += part.chars().count() + 1;
    }
    parts
}

/// The elements of a JSON list. Each one's place is that of its quoted text, looked for from the one before on.
fn json(annotation: &str) -> Result<Vec<(usize, String)>, AnnotationError> {
    let values: Vec<serde_json::Value> =
        serde_json::from_str(annotation).map_err(|error| not_json(annotation, &error))?;
    let mut from = 0;
    let mut parts = Vec::with_capacity(values.len());
    for (index, value) in values.into_iter().enumerate() {
        let written = value.to_string();
        let serde_json::Value::String(name) = value else {
            return Err(AnnotationError::NotAText { number: index + 1, value: shown(&written) });
        };
        // Escapes may have been written otherwise than they are here: then the place is the last one known.
        let rest = annotation.get(from..).unwrap_or_default();
        let found = rest.find(&written).map_or(from, |offset| from + offset);
        let before = annotation.get(..found).unwrap_or_default();
        parts.push((before.chars().count() + 1, name));
        from = (found + written.len()).min(annotation.len());
    }
    Ok(parts)
}

/// serde counts lines from 1 and bytes of a line, up to and with the one that it could not use.
fn not_json(annotation: &str, error: &serde_json::Error) -> AnnotationError {
    let lines_before: usize = annotation.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    let mut byte = (lines_before + error.column().saturating_sub(1)).min(annotation.len());
    while !annotation.is_char_boundary(byte) {
        byte -= 1;
    }
    let (before, rest) = annotation.split_at(byte);
    let why = error.to_string();
    let why = why.split(" at line ").next().unwrap_or_default().to_owned();
    AnnotationError::NotJson { rest: shown(rest), at: before.chars().count() + 1, why }
}

fn shown(text: &str) -> String {
    let mut characters = text.chars();
    let mut shown: String = characters.by_ref().take(SHOWN).collect();
    if characters.next().is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(annotation: &str) -> Vec<String> {
        wanted_profiles(annotation).unwrap()
    }

    fn complaint(annotation: &str) -> String {
        wanted_profiles(annotation).unwrap_err().to_string()
    }

    #[test]
    fn names_stand_between_commas_or_in_a_json_list() {
        let both = ["storage", "backup-2"];
        for annotation in
            ["storage,backup-2", " storage , backup-2 ", r#"["storage","backup-2"]"#, " [ \"storage\",\n\"backup-2\" ]"]
        {
            assert_eq!(names(annotation), both, "{annotation:?}");
        }
        for nothing in ["", "  ", "[]", " [ ] "] {
            assert_eq!(names(nothing), [""; 0], "{nothing:?}");
        }
    }

    #[test]
    fn invalid_annotation_is_quoted_with_its_position() {
        let not_a_name = "is not the name of a VnicProfile: small letters, digits and inner hyphens, 1 to 63 of them";
        assert_eq!(complaint("storage, Backup"), format!("\"Backup\" at character 10 {not_a_name}"));
        assert_eq!(complaint("storage,"), format!("\"\" at character 9 {not_a_name}"));
        assert_eq!(complaint("é,b"), format!("\"é\" at character 1 {not_a_name}"));
        assert_eq!(complaint("a b"), format!("\"a b\" at character 1 {not_a_name}"));
        assert_eq!(complaint(r#"["a","ü","B"]"#), format!("\"ü\" at character 6 {not_a_name}"));
        assert_eq!(complaint("a,b,a"), "\"a\" at character 5 is there already");
        assert_eq!(complaint(r#"["a", "a"]"#), "\"a\" at character 7 is there already");
        assert_eq!(complaint(r#"["a",3]"#), "element 2 of the JSON list is 3, not a name in quotes");
        assert_eq!(
            complaint(r#"["a" "b"]"#),
            r#"""\"b\"]"" at character 6 is not how a JSON list of names goes on: expected `,` or `]`"#
                .replacen("\"\"", "\"", 1)
                .replacen("\"\" at", "\" at", 1)
        );
        let many: Vec<String> = (0..17).map(|n| format!("p{n}")).collect();
        assert_eq!(complaint(&many.join(",")), "17 VnicProfiles are named; a Node may ask for 16");
    }

    #[test]
    fn a_long_part_is_shortened() {
        let error = wanted_profiles(&"X".repeat(5000)).unwrap_err();
        assert_eq!(error, AnnotationError::NotAName { part: format!("{}…", "X".repeat(80)), at: 1 });
    }

    #[test]
    fn malformed_annotation_causes_no_panic() {
        for text in ["[", "[\"", "[\"é", "[\n\n\"é\" x", "[\"\\u00", "]", "[[]]", "[\"\\u0061\"]", "\u{0}", "[é"] {
            let _ = wanted_profiles(text);
        }
        assert_eq!(names("[\"\\u0061\",\"b\"]"), ["a", "b"], "escapes are JSON's");
    }
}
