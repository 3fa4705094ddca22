//! Captures of this node on the channel: the controller starts, follows, fetches and removes them.

use api::capture::{AGENT_CAPTURES_PATH, CAPTURE_FILE_SUFFIX, CaptureRequest};
use channel::Reply;
use serde::Serialize;
use stream::Chunks;

use super::json_reply::body;
use crate::captures::{CaptureError, Captures};

/// The uid in a path, and whether its tar is requested.
enum CapturePath<'a> {
    All,
    Progress(&'a str),
    File(&'a str),
}

fn read(path: &str) -> Option<CapturePath<'_>> {
    let rest = path.strip_prefix(AGENT_CAPTURES_PATH)?;
    if rest.is_empty() {
        return Some(CapturePath::All);
    }
    let uid = rest.strip_prefix('/')?;
    Some(uid.strip_suffix(CAPTURE_FILE_SUFFIX).map_or(CapturePath::Progress(uid), CapturePath::File))
}

/// Answers a request about captures; none for other paths.
pub(super) fn answer(captures: &Captures, path: &str, content: Option<&[u8]>) -> Option<Reply> {
    Some(match (read(path)?, content) {
        (CapturePath::All, Some(content)) => match serde_json::from_slice(content) {
            Ok(CaptureRequest::Check(start)) => replied(captures.check(&start)),
            Ok(CaptureRequest::Start(start)) => replied(captures.start(start)),
            Ok(CaptureRequest::Remove { uid }) => {
                captures.remove(&uid);
                Reply::ok("{}")
            }
            Err(error) => Reply::text(400, &format!("not a request for a capture: {error}\n")),
        },
        (CapturePath::All, None) => Reply::text(405, "captures are started by POST\n"),
        (CapturePath::Progress(uid), None) => {
            captures.progress(uid).map_or_else(|error| error.reply(), |progress| body(&progress))
        }
        (CapturePath::Progress(_) | CapturePath::File(_), _) => Reply::text(405, "a capture is read by GET\n"),
    })
}

fn replied(result: Result<impl Serialize, CaptureError>) -> Reply {
    match result {
        Ok(value) => body(&value),
        Err(error) => {
            tracing::warn!(event = "capture.refused", %error);
            error.reply()
        }
    }
}

/// Opens the tar of a capture; none for other paths.
pub(super) fn open(captures: &Captures, path: &str) -> Option<Result<Chunks, Reply>> {
    match read(path)? {
        CapturePath::File(uid) => Some(captures.open(uid)),
        CapturePath::All | CapturePath::Progress(_) => None,
    }
}
