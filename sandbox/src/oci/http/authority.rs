//! The certificate authority of the emulated cloud: instances' certificates for the federation service, proxymux's own,
//! and the signature of session tokens.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::rsa::PublicKey;
use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256,
    PublicKeyData, SanType, SigningKey,
};
use serde_json::{Value, json};
use x509_cert::der::pem::{LineEnding, encode_string};
use x509_cert::der::{self, Any, Decode, DecodePem, Encode, asn1::BitString};
use x509_cert::name::Name;

use crate::error::{Error, Result};
use crate::fabric::SERVICES_V4;
use crate::network::identity::{COMPARTMENT, TENANCY};

/// The authority. Keys are new in each sandbox.
#[derive(Debug)]
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate_pem: String,
    /// One for all instances: creating one takes 100 ms.
    leaf_key: KeyPair,
    /// By instance OCID, from the first request on.
    leaves: Mutex<BTreeMap<String, String>>,
}

/// The place of the subject in a certificate's TBSCertificate (RFC 5280, 4.1).
const SUBJECT: usize = 5;
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
        Ok(Self { issuer, certificate_pem, leaf_key, leaves: Mutex::default() })
    }

    pub(crate) fn certificate_pem(&self) -> String {
        self.certificate_pem.clone()
    }

    /// The metadata service's documents below `identity/` for an instance.
    pub(crate) fn identity(&self, instance: &str) -> Result<Value> {
        let certificate = match self.leaves().get(instance) {
            Some(certificate) => certificate.clone(),
            None => self.leaf(instance)?,
        };
        self.leaves().insert(instance.to_owned(), certificate.clone());
        Ok(json!({
            "cert.pem": certificate,
            "key.pem": pkcs1_pem(self.leaf_key.serialized_der()),
            "intermediate.pem": self.certificate_pem,
        }))
    }

    /// The instance and the tenancy of a certificate (base64 of DER), if this authority signed it and it is valid now, with its
    /// public key.
    pub(crate) fn examine(&self, certificate: &str) -> Option<Examined> {
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
        Some(Examined { instance: text("opc-instance:")?, tenancy: text("opc-tenant:")?, public_key, der })
    }

    /// A session token for a public key (SPKI), until a time.
    pub(crate) fn token(&self, (kind, subject): (&str, &str), public_key: &[u8], until: SystemTime) -> Result<String> {
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

    fn leaf(&self, instance: &str) -> Result<String> {
        let certificate = CertificateParams::default().signed_by(&self.leaf_key, &self.issuer).map_err(failed)?;
        let subject = format!(
            "OU=opc-certtype:instance,OU=opc-compartment:{COMPARTMENT},OU=opc-instance:{instance},OU=opc-tenant:{TENANCY},CN={instance}"
        );
        let bad = |error: der::Error| Error::Invalid(format!("the certificate of {instance}: {error}"));
        let tbs = with_subject(certificate.der(), &subject).map_err(bad)?;
        let signature = self.issuer.key().sign(&tbs).map_err(failed)?;
        let whole = with_signature(certificate.der(), &tbs, &signature).map_err(bad)?;
        encode_string("CERTIFICATE", LineEnding::LF, &whole).map_err(|error| bad(error.into()))
    }

    fn leaves(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.leaves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A certificate that was examined.
pub(crate) struct Examined {
    pub(crate) instance: String,
    pub(crate) tenancy: String,
    /// SPKI.
    pub(crate) public_key: Vec<u8>,
    pub(crate) der: Vec<u8>,
}

/// A user's key.
pub(crate) struct UserKey {
    /// PKCS#8.
    pub(crate) pem: String,
    /// SPKI.
    pub(crate) public_key: Vec<u8>,
}

pub(crate) fn user_key() -> Result<UserKey> {
    let key = KeyPair::generate_for(&PKCS_RSA_SHA256).map_err(failed)?;
    Ok(UserKey { pem: key.serialize_pem(), public_key: key.subject_public_key_info() })
}

/// The signed part of a certificate, with another subject: rcgen takes each type of attribute once, and a real subject has four OUs.
fn with_subject(certificate: &[u8], subject: &str) -> der::Result<Vec<u8>> {
    let tbs = Vec::<Any>::from_der(certificate)?.into_iter().next().unwrap_or_else(Any::null).to_der()?;
    let mut parts = Vec::<Any>::from_der(&tbs)?;
    if let Some(place) = parts.get_mut(SUBJECT) {
        *place = Any::encode_from(&subject.parse::<Name>()?)?;
    }
    parts.to_der()
}

/// A certificate's algorithm, with this content and signature.
fn with_signature(certificate: &[u8], tbs: &[u8], signature: &[u8]) -> der::Result<Vec<u8>> {
    let algorithm = Vec::<Any>::from_der(certificate)?.into_iter().nth(1).unwrap_or_else(Any::null);
    vec![Any::from_der(tbs)?, algorithm, Any::encode_from(&BitString::from_bytes(signature)?)?].to_der()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_certificate_has_the_subject_of_a_real_one() {
        let authority = Authority::new().unwrap();
        let pem = authority.identity("ocid1.instance.oc1.iad.a").unwrap()["cert.pem"].as_str().unwrap().to_owned();
        let certificate = x509_cert::Certificate::from_pem(&pem).unwrap();
        let mut subject: Vec<String> =
            certificate.tbs_certificate().subject().iter().map(ToString::to_string).collect();
        subject.sort();
        let unit = |text: &str| format!("OU={text}");
        let expected = [
            "CN=ocid1.instance.oc1.iad.a".to_owned(),
            unit("opc-certtype:instance"),
            unit(&format!("opc-compartment:{COMPARTMENT}")),
            unit("opc-instance:ocid1.instance.oc1.iad.a"),
            unit(&format!("opc-tenant:{TENANCY}")),
        ];
        assert_eq!(subject, expected);
        let examined = authority.examine(&STANDARD.encode(certificate.to_der().unwrap())).unwrap();
        assert_eq!((examined.instance.as_str(), examined.tenancy.as_str()), ("ocid1.instance.oc1.iad.a", TENANCY));
    }
}
