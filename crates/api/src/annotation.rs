//! The annotation [`crate::VNICS_ANNOTATION`] on a Node: the VnicProfiles that it requests, by name.
//!
//! Written `storage,backup` or, as JSON, `["storage","backup"]`. Empty means none.

use thiserror::Error;

use crate::vnic_name::is_dns_label;

/// The most profiles that one Node may request: far more than any shape can carry.
pub const MAX_PROFILES: usize = 16;

/// The most characters of an offending part that an error shows.
const SHOWN: usize = 80;

/// What is wrong with the annotation.
#[derive(Debug, Error)]
pub enum AnnotationError {
    /// A part is not a VnicProfile's name.
    #[error("{0:?} is not the name of a VnicProfile: small letters, digits and inner hyphens, 1 to 63 of them")]
    NotAName(String),
    /// A name is there twice.
    #[error("{0:?} is there twice")]
    Twice(String),
    /// It begins like a JSON list and is none of names.
    #[error("it is not a JSON list of names: {0}")]
    NotJson(#[from] serde_json::Error),
    /// There are too many.
    #[error("{0} VnicProfiles are named; a Node may name at most {MAX_PROFILES}")]
    TooMany(usize),
}

/// The names of the VnicProfiles that a Node requests, in the order they stand there.
///
/// # Errors
/// When any part of it is wrong: nothing is done by halves, since the rest may not be what was meant either.
pub fn requested_profiles(annotation: &str) -> Result<Vec<String>, AnnotationError> {
    let names: Vec<String> = match annotation.trim() {
        "" => Vec::new(),
        json if json.starts_with('[') => serde_json::from_str(json)?,
        list => list.split(',').map(|name| name.trim().to_owned()).collect(),
    };
    if names.len() > MAX_PROFILES {
        return Err(AnnotationError::TooMany(names.len()));
    }
    for (place, name) in names.iter().enumerate() {
        if !is_dns_label(name) {
            return Err(AnnotationError::NotAName(name.chars().take(SHOWN).collect()));
        }
        if names.iter().take(place).any(|before| before == name) {
            return Err(AnnotationError::Twice(name.clone()));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(annotation: &str) -> String {
        requested_profiles(annotation).unwrap_err().to_string()
    }

    #[test]
    fn names_stand_between_commas_or_in_a_json_list() {
        let both = ["storage", "backup-2"];
        for annotation in
            ["storage,backup-2", " storage , backup-2 ", r#"["storage","backup-2"]"#, " [ \"storage\",\n\"backup-2\" ]"]
        {
            assert_eq!(requested_profiles(annotation).unwrap(), both, "{annotation:?}");
        }
        for nothing in ["", "  ", "[]", " [ ] "] {
            assert_eq!(requested_profiles(nothing).unwrap(), [""; 0], "{nothing:?}");
        }
    }

    #[test]
    fn invalid_annotation_is_refused_and_quoted() {
        let no_name = "is not the name of a VnicProfile: small letters, digits and inner hyphens, 1 to 63 of them";
        for (annotation, part) in
            [("storage, Backup", "Backup"), ("storage,", ""), ("é,b", "é"), ("a b", "a b"), (r#"["a","ü","B"]"#, "ü")]
        {
            assert_eq!(complaint(annotation), format!("{part:?} {no_name}"));
        }
        assert_eq!(complaint(&"X".repeat(5000)), format!("{:?} {no_name}", "X".repeat(80)));
        assert_eq!(complaint("a,b,a"), "\"a\" is there twice");
        assert_eq!(complaint(r#"["a", "a"]"#), "\"a\" is there twice");
        for malformed in [r#"["a" "b"]"#, r#"["a",3]"#, "[", "[[]]", "[\"\\u00", "[é"] {
            let error = complaint(malformed);
            assert!(
                error.starts_with("it is not a JSON list of names: ") && error.contains(" at line 1 column "),
                "{error}"
            );
        }
        let many: Vec<String> = (0..17).map(|n| format!("p{n}")).collect();
        assert_eq!(complaint(&many.join(",")), "17 VnicProfiles are named; a Node may name at most 16");
    }
}
