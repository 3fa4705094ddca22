//! Fingerprints of public keys.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// `sha256:` and 64 hexadecimal digits: the SHA-256 of a public key in DER (SubjectPublicKeyInfo).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

/// Why a text is not a fingerprint.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("not a fingerprint of the form sha256: and 64 hexadecimal digits")]
pub struct FingerprintError;

const PREFIX: &str = "sha256:";

impl Fingerprint {
    /// Of a public key in DER.
    pub fn of(public_key: &[u8]) -> Self {
        let mut bytes = [0; 32];
        let digest = digest::digest(&digest::SHA256, public_key);
        bytes.iter_mut().zip(digest.as_ref()).for_each(|(to, from)| *to = *from);
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let digits = text.strip_prefix(PREFIX).ok_or(FingerprintError)?.as_bytes();
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(FingerprintError);
        }
        let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let [high, low] = *pair else { return Err(FingerprintError) };
            *byte = digit(high).ok_or(FingerprintError)? << 4 | digit(low).ok_or(FingerprintError)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fingerprint_is_the_sha256_of_the_key() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Fingerprint::of(b"").to_string(), empty);
        assert_eq!(empty.parse(), Ok(Fingerprint::of(b"")));
        let short = empty.get(..empty.len() - 2).unwrap();
        for wrong in ["", "sha256:", "sha1:00", short, &empty.replace("e3", "+3"), &empty.replace("e3", "é")] {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(FingerprintError), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,100}") {
            if let Ok(fingerprint) = text.parse::<Fingerprint>() {
                prop_assert_eq!(fingerprint.to_string(), text.to_lowercase());
            }
        }
    }
}
