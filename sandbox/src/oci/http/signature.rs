//! Checks a request's signature as the real service does: all required headers signed, the body's hash right, the date
//! near, the key known.

#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;

use crate::oci::emulator::{Outcome, Refusal, Request, refuse};

/// How far a request's date may be from the service's clock.
const CLOCK_SKEW: Duration = Duration::from_mins(5);

/// The `authorization` header of a signed request, in its parts.
pub(super) struct Signature<'a> {
    pub(super) key_id: &'a str,
    headers: Vec<String>,
    signature: Vec<u8>,
}

pub(super) fn not_authenticated(why: &str) -> Refusal {
    let message =
        format!("The required information to complete authentication was not provided or was incorrect. ({why})");
    refuse(401, "NotAuthenticated", message)
}

impl<'a> Signature<'a> {
    pub(super) fn of(request: &'a Request) -> Outcome<Self> {
        let bad = || not_authenticated("no authorization header of the form Signature …");
        let text = request.header("authorization").and_then(|text| text.strip_prefix("Signature ")).ok_or_else(bad)?;
        let field = |name: &str| {
            let mut fields = text.split(',').filter_map(|field| field.trim().split_once('='));
            fields.find(|(key, _)| *key == name).map(|(_, value)| value.trim_matches('"'))
        };
        if field("version").is_some_and(|version| version != "1") || field("algorithm") != Some("rsa-sha256") {
            return Err(not_authenticated("version 1 and rsa-sha256 only"));
        }
        let signature = STANDARD.decode(field("signature").ok_or_else(bad)?).map_err(|_| bad())?;
        let headers = field("headers").ok_or_else(bad)?.split(' ').map(str::to_ascii_lowercase).collect();
        Ok(Self { key_id: field("keyId").ok_or_else(bad)?, headers, signature })
    }

    /// Checks it against a public key (SPKI). `host_too`: the federation service wants no host.
    pub(super) fn check(&self, request: &Request, public_key: &[u8], host_too: bool) -> Outcome<()> {
        let with_body = matches!(request.method, Method::POST | Method::PUT | Method::PATCH);
        // A browser does not let a script set `date`: the SDK for TypeScript signs `x-date`.
        let is_signed = |name: &str| self.headers.iter().any(|own| own == name);
        let dated = if is_signed("x-date") { "x-date" } else { "date" };
        let mut required = vec![dated, "(request-target)"];
        required.extend(host_too.then_some("host"));
        if with_body {
            required.extend(["content-length", "content-type", "x-content-sha256"]);
            if request.header("x-content-sha256") != Some(&STANDARD.encode(digest(&SHA256, &request.body))) {
                return Err(not_authenticated("x-content-sha256 does not match the body"));
            }
        }
        if let Some(missing) = required.iter().find(|name| !is_signed(name)) {
            return Err(not_authenticated(&format!("{missing} is not signed")));
        }
        let date = request.header(dated).and_then(|date| httpdate::parse_http_date(date).ok());
        let date = date.ok_or_else(|| not_authenticated("no date"))?;
        let now = SystemTime::now();
        if now.duration_since(date).or_else(|_| date.duration_since(now)).unwrap_or_default() > CLOCK_SKEW {
            return Err(not_authenticated("the date is too far from the service's clock"));
        }
        let message = self.message(request)?;
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, public_key)
            .verify(message.as_bytes(), &self.signature)
            .map_err(|_| not_authenticated("the signature does not match"))
    }

    fn message(&self, request: &Request) -> Outcome<String> {
        let mut lines = Vec::new();
        for name in &self.headers {
            let value = match name.as_str() {
                "(request-target)" => format!("{} {}", request.method.as_str().to_lowercase(), request.target),
                name => {
                    request.header(name).ok_or_else(|| not_authenticated(&format!("{name} is missing")))?.to_owned()
                }
            };
            lines.push(format!("{name}: {value}"));
        }
        Ok(lines.join("\n"))
    }
}
