//! One call: its parts, its effect when repeated, its answer.

use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use vcn::Ocid;

use super::retry::Repeat;
use crate::error::{Error, Failure, beginning};
use crate::object::Etag;
use crate::request_id::RequestId;
use crate::retry_token::RetryToken;
use crate::transport::Answer;

/// The version of the core services' API.
pub(super) const CORE: &str = "20160918";

#[derive(Debug)]
pub(crate) struct Call<'a> {
    /// Oracle's name of it.
    pub(crate) operation: &'static str,
    /// Its subject, for messages.
    pub(crate) subject: &'a str,
    pub(crate) method: Method,
    /// The version of the API, part of the path.
    pub(crate) version: &'static str,
    /// Below the version, for example `/vnics/ocid1…`.
    pub(crate) path: String,
    pub(crate) query: Vec<(&'static str, String)>,
    /// JSON. Required for POST and PUT.
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) retry_token: Option<&'a RetryToken>,
    pub(crate) if_match: Option<&'a Etag>,
}

impl Call<'_> {
    pub(super) fn repeat(&self) -> Repeat {
        // A PUT or a DELETE done twice is the same as done once. A POST creates an object each time, unless a token names it.
        if self.method == Method::POST && self.retry_token.is_none() { Repeat::Doubles } else { Repeat::Harmless }
    }

    pub(super) fn failed(&self, attempts: u32, request_id: &RequestId, source: Failure) -> Error {
        Error::Call {
            operation: self.operation,
            subject: self.subject.to_owned(),
            attempts,
            request_id: request_id.clone(),
            source: Box::new(source),
        }
    }
}

pub(super) fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, Failure> {
    serde_json::from_slice(&answer.body)
        .map_err(|error| Failure::Unreadable { beginning: beginning(&answer.body), source: error.into() })
}

/// `?a=b&c=d`; all but unreserved characters are escaped, so that every URL parser and the signature check agree.
pub(super) fn query(parameters: &[(&'static str, String)]) -> String {
    let mut text = String::new();
    for (index, (name, value)) in parameters.iter().enumerate() {
        text.push(if index == 0 { '?' } else { '&' });
        text.push_str(name);
        text.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                text.push(byte.into());
            } else {
                text.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    text
}

impl Call<'_> {
    pub(crate) fn with(mut self, name: &'static str, value: &Ocid) -> Self {
        self.query.push((name, value.to_string()));
        self
    }
}

pub(crate) fn get<'a>(operation: &'static str, subject: &'a str, path: String) -> Call<'a> {
    Call {
        operation,
        subject,
        method: Method::GET,
        version: CORE,
        path,
        query: Vec::new(),
        body: None,
        retry_token: None,
        if_match: None,
    }
}

pub(crate) fn delete<'a>(operation: &'static str, subject: &'a str, path: String) -> Call<'a> {
    Call { method: Method::DELETE, ..get(operation, subject, path) }
}

pub(crate) fn post<'a>(
    operation: &'static str,
    subject: &'a str,
    path: String,
    body: &impl Serialize,
) -> Result<Call<'a>, Error> {
    let body = serde_json::to_vec(body).map_err(|error| Error::setup_by(format!("the body of {operation}"), error))?;
    Ok(Call { method: Method::POST, body: Some(body), ..get(operation, subject, path) })
}
