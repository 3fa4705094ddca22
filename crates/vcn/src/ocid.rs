//! Oracle Cloud identifiers.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::text_type;

/// An OCID: `ocid1.<type>.<realm>.[region].<unique id>`, or of a tenancy of the first years
/// `ocidv1:<type>:<realm>:<region>:<number>:<unique id>`, which is its root compartment's, too. Kept as given; compared as text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ocid(String);

/// Why a text is not an OCID.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not an OCID (ocid1.<type>.<realm>.[region].<unique id>, at most 255 characters)")]
pub struct OcidError(String);

/// What stands between the parts: Oracle's SDKs take either, everywhere.
const SEPARATORS: [char; 2] = ['.', ':'];

impl Ocid {
    /// Checks an identifier.
    ///
    /// # Errors
    /// When it has not the shape of one.
    pub fn new(text: impl Into<String>) -> Result<Self, OcidError> {
        let text = text.into();
        if is_shaped(&text) { Ok(Self(text)) } else { Err(OcidError(text.chars().take(300).collect())) }
    }

    /// The identifier as OCI writes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last part. NativePodNetwork objects are named by it.
    pub fn unique_id(&self) -> &str {
        self.0.rsplit(SEPARATORS).next().unwrap_or(&self.0)
    }
}

/// Looked at byte by byte, for every ADD reads some.
fn is_shaped(text: &str) -> bool {
    let separates = |byte: u8| SEPARATORS.contains(&char::from(byte));
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || separates(byte);
    text.starts_with("ocid")
        && text.len() <= 255
        && text.bytes().filter(|byte| separates(*byte)).count() >= 3
        && !text.bytes().next_back().is_some_and(separates)
        && text.bytes().all(allowed)
}

text_type!(Ocid, OcidError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unique_id_is_the_last_part() {
        let ocid: Ocid = "ocid1.instance.oc1.iad.anyhqljt".parse().unwrap();
        assert_eq!(ocid.unique_id(), "anyhqljt");
        assert!("ocid1.tenancy.oc1..aaaa".parse::<Ocid>().is_ok(), "global resources have an empty region");
    }

    #[test]
    fn a_tenancy_of_the_first_years_has_one_too() {
        let ocid: Ocid = "ocidv1:tenancy:oc1:phx:1460406592660:aaaaaaaab4faofrf".parse().unwrap();
        assert_eq!(ocid.unique_id(), "aaaaaaaab4faofrf");
    }

    #[test]
    fn other_texts_are_refused() {
        let long = |length: usize| format!("ocid1.a.b.c.{}", "x".repeat(length - 12));
        assert!(long(255).parse::<Ocid>().is_ok());
        for bad in [
            &long(256),
            "ocid1.vnic.oc1",
            "ocid1.vnic.oc1.é",
            "",
            "ocid1",
            "instance.oc1.iad.x",
            "ocid1.vnic.oc1.",
            "ocidv1:tenancy:oc1:phx:",
            "ocid1.vnic.oc1.iad.x y",
            "ocid1.vnic.oc1.iad.x/y",
            "oci://ocid1.a.b.c",
        ] {
            assert!(bad.parse::<Ocid>().is_err(), "{bad:?}");
        }
    }
}
