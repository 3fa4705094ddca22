//! Who a client is to the API server, and what proves it.

use std::fs;
use std::path::Path;

use kube::config::Kubeconfig;
use serde_json::json;

use crate::authority::CertificateAndKey;
use anyhow::{Context, Result, anyhow};

/// A user, a node or a service account, with its proof.
#[derive(Clone, Debug)]
pub struct Identity(Proof);

#[derive(Clone, Debug)]
enum Proof {
    Certificate(CertificateAndKey),
    Token(String),
}

impl Identity {
    /// Whomever the token names.
    #[must_use]
    pub fn of_token(token: impl Into<String>) -> Self {
        Self(Proof::Token(token.into()))
    }

    pub(crate) fn of_certificate(certified: CertificateAndKey) -> Self {
        Self(Proof::Certificate(certified))
    }

    /// The token, where that is the proof.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        match &self.0 {
            Proof::Token(token) => Some(token),
            Proof::Certificate(_) => None,
        }
    }

    /// A kubeconfig: one cluster, one user, one context. As JSON it is YAML too.
    pub(crate) fn document(&self, url: &str, authority: &str) -> serde_json::Value {
        let user = match &self.0 {
            Proof::Token(token) => json!({ "token": token }),
            Proof::Certificate(CertificateAndKey { certificate, key }) => json!({
                "client-certificate-data": base64(certificate),
                "client-key-data": base64(key),
            }),
        };
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority-data": base64(authority)}}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        })
    }

    pub(crate) fn kubeconfig(&self, url: &str, authority: &str) -> Result<Kubeconfig> {
        let invalid = |error: serde_json::Error| anyhow!("the kubeconfig of {url}: {error}");
        serde_json::from_value(self.document(url, authority)).map_err(invalid)
    }

    /// The files that a kubelet mounts into a pod: token, ca.crt, namespace.
    pub(crate) fn write_in_cluster(&self, authority: &str, namespace: &str, folder: &Path) -> Result<()> {
        let token = self.token().ok_or_else(|| anyhow!("a pod's identity is a token"))?;
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        for (name, content) in [("token", token), ("ca.crt", authority), ("namespace", namespace)] {
            let (path, new) = (folder.join(name), folder.join(format!(".{name}")));
            // Whole at any time: the file is read again while it is renewed.
            let written = fs::write(&new, content).and_then(|()| fs::rename(&new, &path));
            written.with_context(|| format!("write {}", path.display()))?;
        }
        Ok(())
    }
}

fn base64(text: &str) -> String {
    base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text)
}
