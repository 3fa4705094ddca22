//! Reads refusals: OCI's code and message, and when to retry.

use std::time::Duration;

use crate::error::{Refusal, beginning};
use crate::transport::Answer;

/// The longest message kept of a refusal, in characters; Oracle's messages have a few hundred at most.
const MAX_MESSAGE: usize = 1000;

/// Reads a refusal. A proxy in between may answer with anything.
pub(crate) fn refusal(answer: &Answer) -> Refusal {
    #[derive(serde::Deserialize)]
    struct ErrorBody {
        code: String,
        message: Option<String>,
    }
    let complaint = serde_json::from_slice::<ErrorBody>(&answer.body);
    let (code, message) = match complaint {
        Ok(complaint) => {
            (complaint.code, vcn::excerpt(&complaint.message.unwrap_or_default(), MAX_MESSAGE).into_owned())
        }
        Err(_) => (String::new(), beginning(&answer.body)),
    };
    Refusal { status: answer.status.as_u16(), code, message, retry_after: retry_after(answer) }
}

/// In seconds; the other form of the header, a date, needs two clocks that agree.
pub(crate) fn retry_after(answer: &Answer) -> Option<Duration> {
    answer.header("retry-after")?.trim().parse().ok().map(Duration::from_secs)
}
