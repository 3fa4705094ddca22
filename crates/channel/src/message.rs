//! Requests and replies: whole, and bounded by [`BODY_MAX`](crate::BODY_MAX).

use std::error::Error;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Bytes};

use crate::BODY_MAX;

/// A request of the controller to an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The path with its query.
    pub path: String,
    /// The `ETag` of the reply that the sender has.
    pub if_none_match: Option<String>,
    /// What a POST carries; nothing makes a GET.
    pub body: Option<Bytes>,
}

/// The reply of an agent, read completely.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The status as in HTTP, such as 200.
    pub status: u16,
    /// What identifies this version of the body.
    pub etag: Option<String>,
    /// The body, JSON unless the status is an error.
    pub body: Bytes,
}

impl Request {
    /// A GET of a path.
    pub fn get(path: impl Into<String>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    /// A POST to a path.
    pub fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { path: path.into(), body: Some(body.into()), ..Self::default() }
    }
}

impl Reply {
    /// A status with a plain text.
    pub fn text(status: u16, text: &str) -> Self {
        Self { status, body: Bytes::from(text.to_owned()), ..Self::default() }
    }

    /// 200 with a body.
    pub fn ok(body: impl Into<Bytes>) -> Self {
        Self { status: 200, body: body.into(), ..Self::default() }
    }
}

/// A whole body.
///
/// # Errors
/// If the body is longer than [`BODY_MAX`], or the connection breaks.
pub(crate) async fn collect<B: Body>(body: B) -> Result<Bytes, Box<dyn Error + Send + Sync>>
where
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    Ok(Limited::new(body, BODY_MAX).collect().await?.to_bytes())
}
