//! Requests as the handlers read them, and their answers.

use std::collections::BTreeMap;

use hyper::{HeaderMap, Method};
use serde_json::{Value, json};

/// A whole request.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) path: String,
    /// Unescaped.
    pub(super) query: BTreeMap<String, String>,
    /// Path and query as they were sent.
    pub(super) target: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

/// What to send back.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    /// No body when `None`.
    pub(super) body: Option<Value>,
}

/// An answer that says no.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    pub(super) status: u16,
    pub(super) code: String,
    pub(super) message: String,
    pub(super) retry_after: Option<u32>,
}

pub(super) type Outcome<T = Answer> = Result<T, Refused>;

impl Asked {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as JSON.
    pub(super) fn json(&self) -> Outcome<Value> {
        serde_json::from_slice(&self.body).map_err(|error| refuse(400, "CannotParseRequest", error.to_string()))
    }
}

impl Answer {
    pub(super) fn object(body: Value, etag: &str) -> Self {
        Self { status: 200, headers: vec![("etag", etag.to_owned())], body: Some(body) }
    }

    pub(super) const fn plain(body: Value) -> Self {
        Self { status: 200, headers: Vec::new(), body: Some(body) }
    }

    pub(super) const fn nothing() -> Self {
        Self { status: 204, headers: Vec::new(), body: None }
    }

    /// One page of a list: as many entries as the caller and the settings allow, and where the next one begins.
    pub(super) fn page(asked: &Asked, most: usize, all: Vec<Value>) -> Outcome<Self> {
        let number = |name: &str| asked.query.get(name).map(|text| text.parse::<usize>()).transpose();
        let limit = number("limit").map_err(|_| refuse(400, "InvalidParameter", "limit is no number"))?;
        let limit = limit.unwrap_or(most).min(most).max(1);
        let from = match asked.query.get("page") {
            None => 0,
            Some(token) => token
                .strip_prefix("page-")
                .and_then(|number| number.parse().ok())
                .ok_or_else(|| refuse(400, "InvalidParameter", "page is no token of ours"))?,
        };
        let more = all.len() > from + limit;
        let page: Vec<Value> = all.into_iter().skip(from).take(limit).collect();
        let mut answer = Self::plain(Value::Array(page));
        if more {
            answer.headers.push(("opc-next-page", format!("page-{}", from + limit)));
        }
        Ok(answer)
    }
}

impl From<Refused> for Answer {
    fn from(refused: Refused) -> Self {
        let headers = refused.retry_after.map(|seconds| ("retry-after", seconds.to_string())).into_iter().collect();
        let body = json!({ "code": refused.code, "message": refused.message });
        Self { status: refused.status, headers, body: Some(body) }
    }
}

pub(super) fn refuse(status: u16, code: &str, message: impl Into<String>) -> Refused {
    Refused { status, code: code.to_owned(), message: message.into(), retry_after: None }
}

/// The answer that does not tell whether the thing is gone or not ours to see.
pub(super) fn not_found() -> Refused {
    refuse(404, "NotAuthorizedOrNotFound", "Authorization failed or requested resource not found.")
}

/// The same about a thing that the request refers to.
pub(super) fn related_not_found(what: &str) -> Refused {
    let message = format!("Authorization failed or {what} not found.");
    refuse(400, "RelatedResourceNotAuthorizedOrNotFound", message)
}

pub(super) fn missing(what: &str) -> Refused {
    refuse(400, "MissingParameter", format!("{what} is missing"))
}

pub(super) fn invalid(message: impl Into<String>) -> Refused {
    refuse(400, "InvalidParameter", message)
}
