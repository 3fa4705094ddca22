//! Encrypted private keys: PKCS#8 with PBES2 (PBKDF2 and AES-CBC), the form that OpenSSL 3 and Oracle's tools write. Older forms are
//! refused with the command that converts them.

use std::num::NonZeroU32;

use aws_lc_rs::cipher::{AES_128, AES_192, AES_256, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::pbkdf2::{self, PBKDF2_HMAC_SHA1, PBKDF2_HMAC_SHA256, PBKDF2_HMAC_SHA384, PBKDF2_HMAC_SHA512};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pkcs8::EncryptedPrivateKeyInfoRef;
use pkcs8::pkcs5::EncryptionScheme::Pbes2;
use pkcs8::pkcs5::pbes2::{EncryptionScheme, Kdf, Parameters, Pbkdf2Params, Pbkdf2Prf};

/// The two lines of PEM armor, as far as they tell the forms apart.
const BEGIN: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
const LEGACY: &str = "Proc-Type: 4,ENCRYPTED";

const MISSING: &str = "it is encrypted, and its pass_phrase is missing from the profile";
/// A wrong passphrase, or a damaged file.
pub(super) const WRONG: &str = "pass_phrase does not decrypt it";
const UNKNOWN: &str = "it is encrypted in a form that is not supported; convert it: \
    openssl pkcs8 -topk8 -v2 aes-256-cbc -in OLD.pem -out NEW.pem";

/// Decrypts a key in PEM form. Returns its PKCS#8 document; `None` where it is not encrypted.
pub(super) fn decrypt(pem: &str, pass_phrase: Option<&str>) -> Result<Option<Vec<u8>>, &'static str> {
    let mut lines = pem.lines().map(str::trim);
    if pem.contains(LEGACY) {
        return Err(UNKNOWN);
    }
    if !lines.any(|line| line == BEGIN) {
        return Ok(None);
    }
    let pass_phrase = pass_phrase.ok_or(MISSING)?;
    let body: String = lines.take_while(|line| !line.starts_with("-----END")).collect();
    let der = STANDARD.decode(body).map_err(|_| UNKNOWN)?;
    let info = EncryptedPrivateKeyInfoRef::try_from(der.as_slice()).map_err(|_| UNKNOWN)?;
    let Pbes2(Parameters { kdf: Kdf::Pbkdf2(kdf), encryption }) = &info.encryption_algorithm else {
        return Err(UNKNOWN);
    };
    let (cipher, iv) = match encryption {
        EncryptionScheme::Aes128Cbc { iv } => (&AES_128, iv),
        EncryptionScheme::Aes192Cbc { iv } => (&AES_192, iv),
        EncryptionScheme::Aes256Cbc { iv } => (&AES_256, iv),
        _ => return Err(UNKNOWN),
    };
    let mut key = vec![0; encryption.key_size()];
    derive(kdf, pass_phrase, &mut key)?;
    let key = UnboundCipherKey::new(cipher, &key).and_then(PaddedBlockDecryptingKey::cbc_pkcs7).map_err(|_| UNKNOWN)?;
    let mut content = info.encrypted_data.as_bytes().to_vec();
    let plain = key.decrypt(&mut content, DecryptionContext::Iv128(FixedLength::from(iv))).map_err(|_| WRONG)?;
    Ok(Some(plain.to_vec()))
}

/// The key derived from a passphrase.
fn derive(kdf: &Pbkdf2Params, pass_phrase: &str, key: &mut [u8]) -> Result<(), &'static str> {
    let algorithm = match kdf.prf {
        Pbkdf2Prf::HmacWithSha1 => PBKDF2_HMAC_SHA1,
        Pbkdf2Prf::HmacWithSha256 => PBKDF2_HMAC_SHA256,
        Pbkdf2Prf::HmacWithSha384 => PBKDF2_HMAC_SHA384,
        Pbkdf2Prf::HmacWithSha512 => PBKDF2_HMAC_SHA512,
        _ => return Err(UNKNOWN),
    };
    let iterations = NonZeroU32::new(kdf.iteration_count).ok_or(UNKNOWN)?;
    pbkdf2::derive(algorithm, iterations, kdf.salt.as_ref(), pass_phrase.as_bytes(), key);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::key::RsaKey;

    /// One key in several forms; `keys/README` has the commands.
    const PLAIN: &str = include_str!("../../../golden/keys/plain.pem");
    const LEGACY_KEY: &str = include_str!("../../../golden/keys/legacy.pem");
    const DES3: &str = include_str!("../../../golden/keys/des3.pem");
    const PASS: &str = "correct horse";

    fn read(pem: &str, pass_phrase: Option<&str>) -> Result<String, String> {
        let key = RsaKey::from_pem(pem.as_bytes(), pass_phrase).map_err(|error| error.to_string())?;
        Ok(key.public_key().unwrap())
    }

    #[test]
    fn an_encrypted_key_is_read_with_its_pass_phrase() {
        let plain = read(PLAIN, None);
        for pem in [
            include_str!("../../../golden/keys/aes-256-sha256.pem"),
            include_str!("../../../golden/keys/aes-192-sha512.pem"),
            include_str!("../../../golden/keys/aes-128-sha1.pem"),
        ] {
            assert_eq!(read(&format!("{pem}OCI_API_KEY"), Some(PASS)), plain);
            assert_eq!(read(pem, Some("wrong")), Err(format!("the private key cannot be used: {WRONG}")));
            assert_eq!(read(pem, None), Err(format!("the private key cannot be used: {MISSING}")));
        }
        assert_eq!(read(PLAIN, Some("of another profile")), plain, "it needs none");
    }

    #[test]
    fn another_form_is_refused_with_the_command_that_converts_it() {
        for pem in [LEGACY_KEY, DES3] {
            let refused = read(pem, Some(PASS)).unwrap_err();
            assert!(refused.contains("openssl pkcs8 -topk8 -v2 aes-256-cbc"), "{refused}");
        }
    }
}
