//! RSA keys: read from PEM or generated, used to sign. A private key is never shown nor written.

use std::fmt;

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{KeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

use crate::error::LoginError;

/// What PEM documents of encrypted keys contain: of PKCS#8, and of older forms.
const ENCRYPTED: [&str; 2] = ["BEGIN ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED"];

/// A private RSA key, 2048 bits at least.
pub(crate) struct RsaKey(RsaKeyPair);

impl RsaKey {
    /// Generates a key of 2048 bits. Takes about 100 ms of a core: [`RsaKey::generate_aside`] does it elsewhere.
    pub(crate) fn generate() -> Result<Self, LoginError> {
        RsaKeyPair::generate(KeySize::Rsa2048)
            .map(Self)
            .map_err(|_| LoginError::material("the new session key", "it could not be generated"))
    }

    /// [`RsaKey::generate`] on a thread for blocking work, so that no request waits for it.
    pub(crate) fn generate_aside() -> tokio::task::JoinHandle<Result<Self, LoginError>> {
        tokio::task::spawn_blocking(Self::generate)
    }

    /// Reads a key in PEM form: PKCS#8 (`BEGIN PRIVATE KEY`) or PKCS#1 (`BEGIN RSA PRIVATE KEY`). Text around it is skipped:
    /// Oracle's tools append `OCI_API_KEY`. An encrypted key is refused: its pass phrase would be in the Secret next to it.
    pub(crate) fn from_pem(pem: &[u8]) -> Result<Self, LoginError> {
        let problem = |problem: &str| LoginError::material("the private key", problem);
        if ENCRYPTED.iter().any(|mark| pem.windows(mark.len()).any(|part| part == mark.as_bytes())) {
            return Err(problem("it is encrypted; decrypt it: openssl pkey -in OLD.pem -out NEW.pem"));
        }
        let der = PrivateKeyDer::from_pem_slice(pem).map_err(|_| problem("it holds no private key in PEM form"))?;
        let pair = match &der {
            PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
            _ => return Err(problem("it is not an RSA key")),
        };
        pair.map(Self).map_err(|_| problem("it is not an RSA key of 2048 to 8192 bits"))
    }

    /// Signs (PKCS#1 v1.5, SHA-256); in base64.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<String, LoginError> {
        let mut signature = vec![0; self.0.public_modulus_len()];
        self.0
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature)
            .map_err(|_| LoginError::material("the private key", "it does not sign"))?;
        Ok(STANDARD.encode(signature))
    }

    /// The public key as PEM without its armour: base64 of the SubjectPublicKeyInfo.
    pub(crate) fn public_key(&self) -> Result<String, LoginError> {
        let der: PublicKeyX509Der<'_> = self
            .0
            .public_key()
            .as_der()
            .map_err(|_| LoginError::material("the session key", "it has no public half"))?;
        Ok(STANDARD.encode(der.as_ref()))
    }
}

impl fmt::Debug for RsaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RsaKey({} bits)", self.0.public_modulus_len() * 8)
    }
}
