//! The cluster's certificate authority and the key that signs service accounts' tokens, new for each server.

use std::net::IpAddr;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};

use anyhow::{Context, Result};

/// A certificate and its key, as PEM.
#[derive(Clone, Debug)]
pub(crate) struct CertificateAndKey {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Signs servers' and clients' certificates.
#[derive(Debug)]
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    accounts: KeyPair,
}

impl Authority {
    pub(crate) fn new() -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "kubernetes-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key)?.pem();
        let accounts = KeyPair::generate()?;
        Ok(Self { issuer: Issuer::new(params, key), certificate, accounts })
    }

    /// The authority's own certificate.
    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The private and the public key of service accounts' tokens.
    pub(crate) fn account_keys(&self) -> (String, String) {
        (self.accounts.serialize_pem(), self.accounts.public_key_pem())
    }

    /// For the API server at `address`, which pods call `kubernetes.default.svc`.
    pub(crate) fn server(&self, address: IpAddr) -> Result<CertificateAndKey> {
        let names = ["localhost", "kubernetes.default.svc"].map(str::to_owned);
        let mut params =
            CertificateParams::new(names).with_context(|| format!("make a certificate of {}", "kube-apiserver"))?;
        params.subject_alt_names.push(SanType::IpAddress(address));
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.certify("kube-apiserver", &params)
    }

    /// For a client whom the API server takes for `user`, a member of `group`.
    pub(crate) fn client(&self, user: &str, group: Option<&str>) -> Result<CertificateAndKey> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.certify(user, &params)
    }

    fn certify(&self, subject: &str, params: &CertificateParams) -> Result<CertificateAndKey> {
        let key = KeyPair::generate().with_context(|| format!("make a certificate of {}", subject))?;
        let certificate =
            params.signed_by(&key, &self.issuer).with_context(|| format!("make a certificate of {}", subject))?;
        Ok(CertificateAndKey { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}
