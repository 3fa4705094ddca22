//! A reply that has a value as JSON.

use channel::Reply;
use serde::Serialize;

pub(super) fn body(value: &impl Serialize) -> Reply {
    serde_json::to_vec(value).map_or_else(|error| Reply::text(500, &format!("{error}\n")), Reply::ok)
}
