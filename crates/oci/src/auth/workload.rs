//! OKE workload identity: the cluster's proxymux exchanges a pod's service account token for a session token. Enhanced
//! clusters only; needs the proxymux-client DaemonSet on the node.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Request;
use hyper::body::Bytes;
use serde::Deserialize;
use serde_json::json;

use super::instance::{attempt, retried};
use super::progress::Progress;
use super::read_file;
use super::session::TokenSource;
use super::token::Token;
use crate::auth::key::RsaKey;
use crate::error::{Failure, LoginError};
use crate::request_id::RequestId;
use crate::transport::{Transport, Trust};

/// The port of proxymux on the API server's address.
const PORT: u16 = 12250;
/// As in Oracle's SDKs.
const TIMEOUT: Duration = Duration::from_secs(15);

/// A Kubernetes service account as a principal.
#[derive(Debug)]
pub struct WorkloadIdentity {
    url: String,
    token: PathBuf,
    authority: PathBuf,
}

impl WorkloadIdentity {
    /// The directory of a pod's token and the cluster's authority.
    pub const DIRECTORY: &'static str = "/var/run/secrets/kubernetes.io/serviceaccount";

    /// The service account of this pod: `host` is `$KUBERNETES_SERVICE_HOST`.
    pub fn new(host: &str) -> Self {
        let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
        let folder = Path::new(Self::DIRECTORY);
        Self {
            url: format!("https://{host}:{PORT}/resourcePrincipalSessionTokens"),
            token: folder.join("token"),
            authority: folder.join("ca.crt"),
        }
    }

    /// Uses another port than proxymux's 12250.
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Self {
        self.url = self.url.replace(&format!(":{PORT}/"), &format!(":{port}/"));
        self
    }

    /// Uses these files: the service account's token, and the authority in PEM form that signed proxymux's certificate
    /// (`OCI_KUBERNETES_SERVICE_ACCOUNT_CERT_PATH`).
    #[must_use]
    pub fn with_files(mut self, token: &Path, authority: &Path) -> Self {
        (self.token, self.authority) = (token.to_owned(), authority.to_owned());
        self
    }
}

impl TokenSource for WorkloadIdentity {
    async fn token(&self, key: &RsaKey, progress: &Progress) -> Result<Token, LoginError> {
        // Both are read again each time: the kubelet rotates the token, and the authority may be rotated too.
        let authority = read_file("the cluster's authority", &self.authority).await?;
        let account = read_file("the service account's token", &self.token).await?;
        let account = String::from_utf8_lossy(&account).trim().to_owned();
        let transport = Transport::new(&Trust::Only(authority))
            .map_err(|error| LoginError::material("the cluster's authority", error))?;
        let body = json!({ "podKey": key.public_key()? }).to_string();
        let fetch = || async {
            let request = Request::post(&self.url)
                .header("authorization", format!("Bearer {account}"))
                .header("content-type", "application/json")
                .header("opc-request-id", RequestId::new().as_str())
                .body(Bytes::copy_from_slice(body.as_bytes()))
                .map_err(|error| Failure::NoConnection(error.into()))?;
            attempt(TIMEOUT, transport.send(request)).await
        };
        let answer = retried("a session token", &self.url, progress, fetch).await;
        if let Err(LoginError::Fetch { source, .. }) = &answer
            && matches!(source.as_ref(), Failure::Refused(refusal) if refusal.status == 403)
        {
            let problem = "proxymux answers 403: workload identity needs an enhanced cluster";
            return Err(LoginError::material("the service account's token", problem));
        }
        Token::parse(&unwrap(&answer?.body)?, self.now())
    }
}

/// The answer is a JSON string that holds base64 of a JSON object that holds the token.
fn unwrap(body: &[u8]) -> Result<String, LoginError> {
    #[derive(Deserialize)]
    struct Reply {
        token: String,
    }
    let bad = || {
        LoginError::material(
            "the answer of OKE's token service (proxymux)",
            "it holds no token: workload identity needs an enhanced cluster; otherwise set OCI_PRINCIPAL",
        )
    };
    let inner: String = serde_json::from_slice(body).map_err(|_| bad())?;
    let inner = STANDARD.decode(inner).map_err(|_| bad())?;
    let reply: Reply = serde_json::from_slice(&inner).map_err(|_| bad())?;
    Ok(reply.token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_wrapped_twice() {
        let inner = STANDARD.encode(r#"{"token":"ST$a.b.c","more":1}"#);
        assert_eq!(unwrap(format!("\"{inner}\"").as_bytes()).unwrap(), "ST$a.b.c");
        for bad in ["", "{}", "\"!\"", "\"e30=\""] {
            assert!(unwrap(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_ipv6_host_is_bracketed() {
        assert_eq!(WorkloadIdentity::new("fd00::1").url, "https://[fd00::1]:12250/resourcePrincipalSessionTokens");
        assert_eq!(WorkloadIdentity::new("10.96.0.1").url, "https://10.96.0.1:12250/resourcePrincipalSessionTokens");
    }
}
