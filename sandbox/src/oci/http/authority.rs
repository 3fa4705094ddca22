//! The certificate authority of the emulated cloud: instances' certificates for the federation service, proxymux's own,
//! and the signature of session tokens.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::rsa::PublicKey;
use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_RSA_SHA256, PublicKeyData, SanType, SigningKey,
};
use serde_json::{Value, json};
use x509_cert::der::{Decode, DecodePem, Encode};

use crate::error::{Error, Result};
use crate::fabric::SERVICES_V4;
use crate::network::identity::TENANCY;

/// The authority. Keys are new in each sandbox.
#[derive(Debug)]
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate_pem: String,
    /// One for all instances: creating one takes 100 ms.
    leaf_key: KeyPair,
}

/// The bytes of an RSA key's PKCS#8 document before the PKCS#1 document within.
const PKCS8_HEADER: usize = 26;

impl Authority {
    pub(crate) fn new() -> Result<Self> {
        let key = KeyPair::generate_for(&PKCS_RSA_SHA256).map_err(failed)?;
        let leaf_key = KeyPair::generate_for(&PKCS_RSA_SHA256).map_err(failed)?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "PKISVC Identity Intermediate sandbox");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate_pem = params.self_signed(&key).map_err(failed)?.pem();
        let issuer = Issuer::new(params, key);
        Ok(Self { issuer, certificate_pem, leaf_key })
    }

    pub(crate) fn certificate_pem(&self) -> String {
        self.certificate_pem.clone()
    }

    /// The metadata service's documents below `identity/` for an instance.
    pub(crate) fn identity(&self, instance: &str) -> Result<Value> {
        Ok(json!({
            "cert.pem": self.leaf(instance)?,
            "key.pem": pkcs1_pem(self.leaf_key.serialized_der()),
            "intermediate.pem": self.certificate_pem,
        }))
    }

    /// The instance and the tenancy of a certificate (base64 of DER), if this authority signed it and it is valid now, with its
    /// public key.
    pub(crate) fn examine(&self, certificate: &str) -> Option<InstanceCertificate> {
        let der = STANDARD.decode(certificate).ok()?;
        let parsed = x509_cert::Certificate::from_der(&der).ok()?;
        let own = x509_cert::Certificate::from_pem(self.certificate_pem.as_bytes()).ok()?;
        let own_key = own.tbs_certificate().subject_public_key_info().to_der().ok()?;
        let signed = parsed.tbs_certificate().to_der().ok()?;
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, own_key)
            .verify(&signed, parsed.signature().raw_bytes())
            .ok()?;
        let validity = parsed.tbs_certificate().validity();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if now < validity.not_before.to_unix_duration() || now > validity.not_after.to_unix_duration() {
            return None;
        }
        let text = |prefix: &str| {
            let mut attributes = parsed.tbs_certificate().subject().iter();
            attributes.find_map(|attribute| {
                let text = attribute.value.decode_as::<x509_cert::der::asn1::Utf8StringRef<'_>>().ok()?;
                text.as_str().strip_prefix(prefix).map(str::to_owned)
            })
        };
        let public_key = parsed.tbs_certificate().subject_public_key_info().to_der().ok()?;
        Some(InstanceCertificate { instance: text("opc-instance:")?, tenancy: text("opc-tenant:")?, public_key, der })
    }

    /// A session token for a public key (SPKI), until a time.
    pub(crate) fn token(&self, kind: &str, subject: &str, public_key: &[u8], until: SystemTime) -> Result<String> {
        let parsed =
            PublicKey::from_der(public_key).map_err(|error| Error::Invalid(format!("the public key: {error}")))?;
        let number = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let jwk = json!({
            "kid": "sandbox", "kty": "RSA", "alg": "RS256", "use": "sig",
            "n": number(parsed.modulus().big_endian_without_leading_zero()),
            "e": number(parsed.exponent().big_endian_without_leading_zero()),
        });
        let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let claims = json!({
            "sub": subject, "opc-tenant": TENANCY, "ptype": kind, "ttype": "x509", "iss": "authService.oracle.com",
            "iat": seconds(SystemTime::now()), "exp": seconds(until), "jwk": jwk.to_string(),
            // A workload's tenancy, without which the SDK for Go refuses the token.
            "res_tenant": TENANCY,
            // Two tokens of one second differ.
            "jti": format!("{:x?}", public_key.get(40..56)),
        });
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(json!({ "alg": "RS256", "kid": "sandbox" })), part(claims));
        let signature = self.issuer.key().sign(signed.as_bytes()).map_err(failed)?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// A server's certificate and key (DER) for the addresses on which proxymux listens.
    pub(crate) fn server(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let mut params = CertificateParams::default();
        let addresses = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(SERVICES_V4)];
        params.subject_alt_names = addresses.into_iter().map(SanType::IpAddress).collect();
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok((certificate.der().to_vec(), key.serialize_der()))
    }

    /// An instance's certificate. Its subject has what clients and [`Self::examine`] read; a real one has more.
    fn leaf(&self, instance: &str) -> Result<String> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let tenancy = format!("opc-tenant:{TENANCY}");
        params.distinguished_name.push(DnType::OrganizationalUnitName, tenancy);
        // The same type by its number: rcgen takes each name of a type once.
        params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 11]), format!("opc-instance:{instance}"));
        params.distinguished_name.push(DnType::CommonName, instance);
        Ok(params.signed_by(&self.leaf_key, &self.issuer).map_err(failed)?.pem())
    }
}

/// A certificate that was examined.
pub(crate) struct InstanceCertificate {
    pub(crate) instance: String,
    pub(crate) tenancy: String,
    /// The subject's public key as SPKI, in DER.
    pub(crate) public_key: Vec<u8>,
    pub(crate) der: Vec<u8>,
}

pub(crate) struct UserKey {
    /// The private key as PKCS#8, in PEM.
    pub(crate) pem: String,
    /// The public key as SPKI, in DER.
    pub(crate) public_key: Vec<u8>,
}

pub(crate) fn user_key() -> Result<UserKey> {
    let key = KeyPair::generate_for(&PKCS_RSA_SHA256).map_err(failed)?;
    Ok(UserKey { pem: key.serialize_pem(), public_key: key.subject_public_key_info() })
}

/// The form in which the metadata service gives keys out.
fn pkcs1_pem(pkcs8: &[u8]) -> String {
    let body = STANDARD.encode(pkcs8.get(PKCS8_HEADER..).unwrap_or_default());
    let lines: Vec<_> = body.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----\n", lines.join("\n"))
}

fn failed(error: rcgen::Error) -> Error {
    Error::Invalid(format!("the sandbox's certificate authority: {error}"))
}
