//! The instance's certificate: whose it is, and how the federation service names it.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_cert::der::Decode;
use x509_cert::der::asn1::{PrintableStringRef, Utf8StringRef};

use crate::error::LoginError;

/// A certificate in DER form.
pub(super) struct Certificate(CertificateDer<'static>);

impl Certificate {
    pub(super) fn from_pem(pem: &[u8]) -> Result<Self, LoginError> {
        CertificateDer::from_pem_slice(pem)
            .map(Self)
            .map_err(|_| LoginError::material("the instance's certificate", "it is not in PEM format"))
    }

    /// The tenancy: the part of the subject that begins with `opc-tenant:`.
    pub(super) fn tenancy(&self) -> Result<String, LoginError> {
        let bad = |problem: &str| LoginError::material("the instance's certificate", problem);
        let parsed = x509_cert::Certificate::from_der(&self.0).map_err(|_| bad("it is not an X.509 certificate"))?;
        let mut attributes = parsed.tbs_certificate().subject().iter();
        attributes
            .find_map(|attribute| {
                let value = &attribute.value;
                let text = value.decode_as::<Utf8StringRef<'_>>().map(|text| text.as_str().to_owned());
                let text =
                    text.or_else(|_| value.decode_as::<PrintableStringRef<'_>>().map(|text| text.as_str().to_owned()));
                let text = text.ok()?;
                // Older certificates have the second form.
                ["opc-tenant:", "opc-identity:"].iter().find_map(|prefix| text.strip_prefix(prefix)).map(str::to_owned)
            })
            .ok_or_else(|| bad("its subject names no tenancy (opc-tenant:)"))
    }

    /// SHA-256, in capital hexadecimal digits with colons.
    pub(super) fn fingerprint(&self) -> String {
        let bytes = digest(&SHA256, &self.0);
        let digits: Vec<_> = bytes.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        digits.join(":")
    }

    /// PEM without its armour.
    pub(super) fn base64(&self) -> String {
        STANDARD.encode(&self.0)
    }
}
