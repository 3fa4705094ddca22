//! Request signatures: HTTP signatures (draft-cavage-http-signatures-08) with RSA-SHA256, as OCI reads them. Pure.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::auth::key::RsaKey;
use crate::error::LoginError;

/// A key, and the name under which the service knows its public half.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    /// `tenancy/user/fingerprint`, or `ST$` and a token.
    pub(crate) key_id: Arc<str>,
    pub(crate) key: Arc<RsaKey>,
}

/// What of a request is signed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signable<'a> {
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    /// With the port where it is not the scheme's. `None` for the federation service, which wants it unsigned.
    pub(crate) host: Option<&'a str>,
    /// Always JSON. `None` for methods without one.
    pub(crate) body: Option<&'a [u8]>,
}

/// The headers to add, `authorization` among them.
pub(crate) type Headers = Vec<(&'static str, String)>;

/// The type of every body.
const JSON: &str = "application/json";

/// Signs a request. `date` must be within five minutes of the service's clock.
pub(crate) fn sign(request: Signable<'_>, date: SystemTime, who: &Credentials) -> Result<Headers, LoginError> {
    let (names, message, mut headers) = prepare(request, &httpdate::fmt_http_date(date));
    let signature = who.key.sign(message.as_bytes())?;
    let authorization = format!(
        "Signature version=\"1\",keyId=\"{}\",algorithm=\"rsa-sha256\",headers=\"{names}\",signature=\"{signature}\"",
        who.key_id
    );
    headers.push(("authorization", authorization));
    Ok(headers)
}

/// The names of the signed headers, the text to sign, and the headers as they are sent.
fn prepare(request: Signable<'_>, date: &str) -> (String, String, Headers) {
    let mut signed = vec![("date", date.to_owned())];
    signed.push(("(request-target)", format!("{} {}", request.method.to_lowercase(), request.target)));
    if let Some(host) = request.host {
        signed.push(("host", host.to_owned()));
    }
    if let Some(body) = request.body {
        signed.push(("content-length", body.len().to_string()));
        signed.push(("content-type", JSON.to_owned()));
        signed.push(("x-content-sha256", STANDARD.encode(digest(&SHA256, body))));
    }
    let names: Vec<_> = signed.iter().map(|(name, _)| *name).collect();
    let lines: Vec<_> = signed.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let (names, message) = (names.join(" "), lines.join("\n"));
    signed.retain(|(name, _)| *name != "(request-target)");
    (names, message, signed)
}
