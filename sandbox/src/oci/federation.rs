//! The federation service: an instance's certificate for a session token.

use std::time::SystemTime;

use aws_lc_rs::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::answer::{Answer, Asked, Outcome, invalid, missing, refuse};
use super::api::Api;
use super::books::Session;
use super::signature::{Signature, not_authenticated};

impl Api {
    /// `POST /v1/x509`.
    pub(super) fn federate(&self, asked: &Asked) -> Outcome {
        let body = asked.json()?;
        let certificate =
            body.get("certificate").and_then(|text| text.as_str()).ok_or_else(|| missing("certificate"))?;
        let public_key = body.get("publicKey").and_then(|text| text.as_str()).ok_or_else(|| missing("publicKey"))?;
        let public_key = STANDARD.decode(public_key).map_err(|_| invalid("publicKey is no base64"))?;
        let strangers = || not_authenticated("the certificate is not of this cloud, or over");
        let examined = self.authority().examine(certificate).ok_or_else(strangers)?;
        let signature = Signature::of(asked)?;
        let sha256 = body.get("fingerprintAlgorithm").and_then(|name| name.as_str()) == Some("SHA256");
        let (scheme, algorithm) =
            if sha256 { ("fed-x509-sha256", &SHA256) } else { ("fed-x509", &SHA1_FOR_LEGACY_USE_ONLY) };
        // Oracle's SDKs write its digits in lower case (Go) or in capitals (Java, Python).
        let own = fingerprint(algorithm, &examined.der);
        let given = signature.key_id.strip_prefix(&format!("{}/{scheme}/", examined.tenancy));
        if !given.is_some_and(|given| given.eq_ignore_ascii_case(&own)) {
            return Err(not_authenticated("the key id is not tenancy/scheme/fingerprint"));
        }
        signature.check(asked, &examined.public_key, self.settings().clock_skew, false)?;
        if !self.is_running(&examined.instance) {
            return Err(not_authenticated("no such instance"));
        }
        let token = self.session(("instance", &examined.instance), public_key)?;
        Ok(Answer::plain(json!({ "token": token })))
    }

    /// Gives a session token out.
    pub(super) fn session(&self, (kind, subject): (&str, &str), public_key: Vec<u8>) -> Outcome<String> {
        let expires = SystemTime::now() + self.settings().token_life;
        let token = self.authority().token((kind, subject), &public_key, expires);
        let token = token.map_err(|error| refuse(400, "InvalidParameter", error.to_string()))?;
        self.books().tokens.insert(token.clone(), Session { public_key, expires });
        Ok(token)
    }
}

fn fingerprint(algorithm: &'static Algorithm, der: &[u8]) -> String {
    let digits: Vec<_> = digest(algorithm, der).as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
    digits.join(":")
}
