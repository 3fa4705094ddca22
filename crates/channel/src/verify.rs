//! Comparison of a peer's public key with the trusted ones, in place of a chain of certificates.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::fingerprint::Fingerprint;

/// Which keys a peer may have, read at each handshake.
pub type TrustedKeys = Arc<dyn Fn() -> BTreeSet<Fingerprint> + Send + Sync>;

/// Accepts peers whose public key is trusted.
pub(crate) struct PinnedKeys {
    trusted: TrustedKeys,
    provider: Arc<CryptoProvider>,
}

impl PinnedKeys {
    pub(crate) fn new(trusted: TrustedKeys, provider: Arc<CryptoProvider>) -> Arc<Self> {
        Arc::new(Self { trusted, provider })
    }

    fn check(&self, public_key: &CertificateDer<'_>, rest: &[CertificateDer<'_>]) -> Result<(), Error> {
        let is_trusted = rest.is_empty() && (self.trusted)().contains(&Fingerprint::of(public_key));
        is_trusted.then_some(()).ok_or(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    /// Whether the peer has the private key.
    fn check_signature(
        &self,
        message: &[u8],
        public_key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(public_key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signature, &self.provider.signature_verification_algorithms)
    }
}

impl fmt::Debug for PinnedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedKeys").finish_non_exhaustive()
    }
}

/// What both verifiers do with signatures.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("TLS 1.2 is not offered".to_owned()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.check_signature(message, cert, dss)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider.signature_verification_algorithms.supported_schemes()
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for PinnedKeys {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity, intermediates).map(|()| ServerCertVerified::assertion())
    }

    signatures!();
}

impl ClientCertVerifier for PinnedKeys {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity, intermediates).map(|()| ClientCertVerified::assertion())
    }

    signatures!();
}
