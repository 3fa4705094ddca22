//! The key pair of a process. It lives in memory only: a new process has a new one.

use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::Ed25519KeyPair;
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use thiserror::Error;

use crate::fingerprint::Fingerprint;

/// A key pair (Ed25519) with its fingerprint.
#[derive(Clone, Debug)]
pub struct Identity {
    pub(crate) key: Arc<CertifiedKey>,
    pub(crate) provider: Arc<CryptoProvider>,
    fingerprint: Fingerprint,
}

/// Why there is not a key pair.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// The cryptographic library made none.
    #[error("generate a key pair")]
    Generate,
    /// TLS cannot use it.
    #[error("use the key pair for TLS")]
    Use(#[from] rustls::Error),
}

impl Identity {
    /// A new key pair.
    ///
    /// # Errors
    /// If the cryptographic library fails.
    pub fn generate() -> Result<Self, IdentityError> {
        let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| IdentityError::Generate)?;
        let key = provider::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pair.as_ref()))?;
        let public = key.public_key().ok_or(IdentityError::Generate)?.to_vec();
        let fingerprint = Fingerprint::of(&public);
        let key = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], key));
        Ok(Self { key, provider: Arc::new(provider::default_provider()), fingerprint })
    }

    /// The fingerprint of its public key.
    pub const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}
