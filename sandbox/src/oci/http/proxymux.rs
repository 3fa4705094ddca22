//! Proxymux: a service account's token for a session token (OKE workload identity).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::access::Access;
use crate::oci::emulator::{Outcome, Request, Response, invalid, missing, refuse};

impl Access {
    /// `POST /resourcePrincipalSessionTokens`, over TLS.
    pub(super) fn workload_token(&self, request: &Request) -> Outcome {
        let token = request.header("authorization").and_then(|text| text.strip_prefix("Bearer ")).unwrap_or_default();
        // The real one checks the token with the API server; here a test lists the accepted ones.
        if !self.credentials().service_accounts.contains(token) {
            return Err(refuse(401, "NotAuthenticated", "the service account's token is not accepted"));
        }
        let body = request.json()?;
        let key = body.get("podKey").and_then(Value::as_str).ok_or_else(|| missing("podKey"))?;
        // The SDK for Go sends the whole PEM document, the one for Python what is between its armor.
        let key: String = key.lines().filter(|line| !line.starts_with("-----")).collect();
        let key = STANDARD.decode(key).map_err(|_| invalid("podKey is not base64"))?;
        let session = self.session("workload", "ocid1.cluster.oc1.iad.sandbox", key)?;
        let inner = json!({ "token": format!("ST${session}") }).to_string();
        Ok(Response::plain(Value::String(STANDARD.encode(inner))))
    }
}
