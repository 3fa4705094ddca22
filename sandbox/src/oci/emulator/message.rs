//! Requests as the handlers read them, and their responses.

use std::collections::BTreeMap;

use hyper::{HeaderMap, Method};
use serde_json::{Map, Value, json};

#[derive(Debug)]
pub(in crate::oci) struct Request {
    pub(in crate::oci) method: Method,
    pub(in crate::oci) path: String,
    pub(in crate::oci) query: BTreeMap<String, String>,
    /// Path and query as they were sent.
    pub(in crate::oci) target: String,
    pub(in crate::oci) headers: HeaderMap,
    pub(in crate::oci) body: Vec<u8>,
}

/// What to send back.
#[derive(Clone, Debug)]
pub(in crate::oci) struct Response {
    pub(in crate::oci) status: u16,
    pub(in crate::oci) headers: Vec<(&'static str, String)>,
    /// No body when `None`.
    pub(in crate::oci) body: Option<Value>,
}

/// A refusal as the service words it: status, code, message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub(in crate::oci) status: u16,
    pub(in crate::oci) code: String,
    pub(in crate::oci) message: String,
}

/// A status and a code, with a message of no meaning.
impl From<(u16, &str)> for Refusal {
    fn from((status, code): (u16, &str)) -> Self {
        refuse(status, code, "as the test wants")
    }
}

/// A status, a code and a message.
impl From<(u16, &str, &str)> for Refusal {
    fn from((status, code, message): (u16, &str, &str)) -> Self {
        refuse(status, code, message)
    }
}

pub(in crate::oci) type Outcome<T = Response> = Result<T, Refusal>;

impl Request {
    pub(in crate::oci) fn new(parts: hyper::http::request::Parts, body: Vec<u8>) -> Self {
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
        let query = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
        let path = parts.uri.path().to_owned();
        Self { method: parts.method, path, query, target, headers: parts.headers, body }
    }

    pub(in crate::oci) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(in crate::oci) fn query(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }

    /// The body, a JSON object.
    pub(in crate::oci) fn json(&self) -> Outcome<Map<String, Value>> {
        let body = serde_json::from_slice(&self.body);
        match body.map_err(|error| refuse(400, "CannotParseRequest", error.to_string()))? {
            Value::Object(fields) => Ok(fields),
            _ => Err(invalid("the body is not an object")),
        }
    }
}

impl Response {
    pub(in crate::oci) fn object(body: Value, version: u64) -> Self {
        Self { status: 200, headers: vec![("etag", etag(version))], body: Some(body) }
    }

    pub(in crate::oci) const fn plain(body: Value) -> Self {
        Self { status: 200, headers: Vec::new(), body: Some(body) }
    }

    pub(in crate::oci) const fn empty() -> Self {
        Self { status: 204, headers: Vec::new(), body: None }
    }

    /// One page of a list: as many entries as the caller and the settings allow, and the token of the next page.
    pub(super) fn page(request: &Request, most: usize, all: impl Iterator<Item = Value>) -> Outcome<Self> {
        let limit = request.query("limit").map(str::parse).transpose().map_err(|_| invalid("limit is not a number"))?;
        let limit = limit.unwrap_or(most).min(most).max(1);
        let from: usize = match request.query("page") {
            None => 0,
            Some(token) => {
                let number = token.strip_prefix("page-").and_then(|number| number.parse().ok());
                number.ok_or_else(|| invalid("page is not a token of this service"))?
            }
        };
        let mut page: Vec<Value> = all.skip(from).take(limit + 1).collect();
        let next = (page.len() > limit).then(|| ("opc-next-page", format!("page-{}", from + limit)));
        page.truncate(limit);
        Ok(Self { headers: next.into_iter().collect(), ..Self::plain(Value::Array(page)) })
    }
}

impl From<Refusal> for Response {
    fn from(refusal: Refusal) -> Self {
        let body = json!({ "code": refusal.code, "message": refusal.message });
        Self { status: refusal.status, headers: Vec::new(), body: Some(body) }
    }
}

/// The version of an object, as text.
fn etag(version: u64) -> String {
    format!("v{version}")
}

/// Refuses a change that was meant for another version.
pub(super) fn check_version(request: &Request, version: u64) -> Outcome<()> {
    match request.header("if-match") {
        Some(expected) if expected != "*" && expected != etag(version) => {
            Err(refuse(412, "NoEtagMatch", format!("if-match is {expected}, the resource is at {}", etag(version))))
        }
        _ => Ok(()),
    }
}

pub(in crate::oci) fn refuse(status: u16, code: &str, message: impl Into<String>) -> Refusal {
    Refusal { status, code: code.to_owned(), message: message.into() }
}

/// The same for what does not exist and what the caller may not read.
pub(in crate::oci) fn not_found() -> Refusal {
    refuse(404, "NotAuthorizedOrNotFound", "Authorization failed or requested resource not found.")
}

/// The same about an object that the request refers to.
pub(super) fn related_not_found(what: &str) -> Refusal {
    let message = format!("Authorization failed or {what} not found.");
    refuse(400, "RelatedResourceNotAuthorizedOrNotFound", message)
}

pub(in crate::oci) fn missing(what: &str) -> Refusal {
    refuse(400, "MissingParameter", format!("{what} is missing"))
}

pub(in crate::oci) fn invalid(message: impl Into<String>) -> Refusal {
    refuse(400, "InvalidParameter", message)
}
