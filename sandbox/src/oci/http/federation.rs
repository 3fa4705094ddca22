//! The federation service: an instance's certificate for a session token.

use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::access::Access;
use super::signature::{Signature, not_authenticated};
use crate::oci::emulator::{Outcome, Request, Response, invalid, missing};

/// How long a session token says that it is good.
const TOKEN_LIFE: Duration = Duration::from_mins(20);

impl Access {
    /// Answers `POST /v1/x509` with a session token for the instance of the certificate.
    pub(super) fn federate(&self, request: &Request) -> Outcome {
        let body = request.json()?;
        let certificate = body.get("certificate").and_then(Value::as_str).ok_or_else(|| missing("certificate"))?;
        let public_key = body.get("publicKey").and_then(Value::as_str).ok_or_else(|| missing("publicKey"))?;
        let public_key = STANDARD.decode(public_key).map_err(|_| invalid("publicKey is not base64"))?;
        let unknown = || not_authenticated("the certificate is not of this cloud, or has expired");
        let examined = self.authority.examine(certificate).ok_or_else(unknown)?;
        let signature = Signature::of(request)?;
        let sha256 = body.get("fingerprintAlgorithm").and_then(Value::as_str) == Some("SHA256");
        let (scheme, algorithm) =
            if sha256 { ("fed-x509-sha256", &SHA256) } else { ("fed-x509", &SHA1_FOR_LEGACY_USE_ONLY) };
        // Oracle's SDKs write its digits in lower case (Go) or in capitals (Java, Python).
        let own = fingerprint(algorithm, &examined.der);
        let given = signature.key_id.strip_prefix(&format!("{}/{scheme}/", examined.tenancy));
        if !given.is_some_and(|given| given.eq_ignore_ascii_case(&own)) {
            return Err(not_authenticated("the key id is not tenancy/scheme/fingerprint"));
        }
        signature.check(request, &examined.public_key, false)?;
        if !self.is_running(&examined.instance) {
            return Err(not_authenticated("the instance does not run"));
        }
        let token = self.session("instance", &examined.instance, public_key)?;
        Ok(Response::plain(json!({ "token": token })))
    }

    /// Issues a session token.
    pub(super) fn session(&self, kind: &str, subject: &str, public_key: Vec<u8>) -> Outcome<String> {
        let token = self.authority.token(kind, subject, &public_key, SystemTime::now() + TOKEN_LIFE);
        let token = token.map_err(|error| invalid(error.to_string()))?;
        self.credentials().tokens.insert(token.clone(), public_key);
        Ok(token)
    }

    fn is_running(&self, id: &str) -> bool {
        let instance = self.emulator.vcn().inventory().by_id(id);
        let state = |name: &str| self.emulator.state().instance_states.get(name).cloned();
        instance.is_some_and(|instance| state(&instance.name).is_none_or(|state| state == "RUNNING"))
    }
}

fn fingerprint(algorithm: &'static Algorithm, der: &[u8]) -> String {
    let digits: Vec<_> = digest(algorithm, der).as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
    digits.join(":")
}
