//! Kubernetes Events (events.k8s.io/v1), for people who read `kubectl describe`: their form, and how one is written. The program
//! decides which Events it writes, and when. kube's own recorder is not used: it folds Events with one reason into the text of
//! the first, and needs the right to change Events.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use thiserror::Error;
use tokio::time::timeout;
use vcn::printable;

/// What an Event says.
#[derive(Clone, Debug, PartialEq)]
pub struct EventContent {
    /// The object, with its uid.
    pub regarding: ObjectReference,
    /// Whether an operator should act.
    pub level: Level,
    /// A stable word, in CamelCase.
    pub reason: &'static str,
    /// What the program was doing, in CamelCase.
    pub action: &'static str,
    /// State and next step; cut after a thousand bytes.
    pub note: String,
}

/// The type of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Information that needs no action.
    Normal,
    /// An operator should act.
    Warning,
}

/// The program that reports the Events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reporter {
    /// The program, as a qualified name.
    pub controller: &'static str,
    /// The name of this process's Pod.
    pub instance: String,
}

/// Why an Event was not written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The API server refused it.
    #[error("{message}")]
    Refused {
        /// The status of HTTP, such as 403.
        code: u16,
        /// The API server's message.
        message: String,
    },
    /// The request got no answer.
    #[error(transparent)]
    Unreachable(kube::Error),
    /// The API server does not answer.
    #[error("no answer within {DEADLINE:?}")]
    NoAnswer,
}

impl WriteError {
    /// Whether a retry may succeed: the API server was busy, failed, or did not answer.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Refused { code, .. } => *code == 429 || *code >= 500,
            Self::Unreachable(_) | Self::NoAnswer => true,
        }
    }

    /// Whether an Event of that name exists already.
    pub const fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { code: 409, .. })
    }
}

const DEADLINE: Duration = Duration::from_secs(10);
/// Bytes; the API server takes 1024.
const MAX_NOTE: usize = 1000;
/// The namespace of Events about objects without a namespace.
const NAMESPACE: &str = "default";

/// Writes an Event under the first of some names that is free; the last one may exist already.
///
/// # Errors
/// If it is not known to be written; without an answer, it may be all the same.
pub async fn write(
    client: &Client,
    mut event: Event,
    names: impl IntoIterator<Item = String> + Send,
) -> Result<(), WriteError> {
    let api: Api<Event> = Api::namespaced(client.clone(), NAMESPACE);
    let mut written = Err(WriteError::NoAnswer);
    for name in names {
        event.metadata.name = Some(name);
        written = match timeout(DEADLINE, api.create(&PostParams::default(), &event)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(kube::Error::Api(status))) => {
                Err(WriteError::Refused { code: status.code, message: status.message.clone() })
            }
            Ok(Err(error)) => Err(WriteError::Unreachable(error)),
            Err(_) => Err(WriteError::NoAnswer),
        };
        if !written.as_ref().is_err_and(WriteError::is_conflict) {
            break;
        }
    }
    written
}

/// A name that no other Event has: by the time, to the nanosecond, as every recorder names them.
pub fn unique_name(content: &EventContent, now: Timestamp) -> String {
    // A name has at most 253 bytes. Cutting may leave a dot or a dash, which cannot precede the dot.
    let object = cut(content.regarding.name.as_deref().unwrap_or_default(), 236).trim_end_matches(['.', '-']);
    format!("{object}.{:x}", now.as_nanosecond())
}

/// An Event, yet without a name.
pub fn event(content: &EventContent, reporter: &Reporter, now: Timestamp) -> Event {
    let level = match content.level {
        Level::Normal => "Normal",
        Level::Warning => "Warning",
    };
    Event {
        metadata: ObjectMeta { namespace: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() },
        action: Some(content.action.to_owned()),
        reason: Some(content.reason.to_owned()),
        type_: Some(level.to_owned()),
        // kubectl prints it unchanged, and it may quote documents.
        note: Some(cut(&printable(&content.note), MAX_NOTE).to_owned()),
        regarding: Some(content.regarding.clone()),
        event_time: Some(MicroTime(now)),
        reporting_controller: Some(reporter.controller.to_owned()),
        reporting_instance: Some(cut(&reporter.instance, 128).to_owned()),
        ..Event::default()
    }
}

/// The first bytes, up to a limit, without a partial character.
fn cut(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(name: String, note: &str) -> EventContent {
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(name),
            uid: Some("4711".to_owned()),
            ..ObjectReference::default()
        };
        let (level, note) = (Level::Warning, note.to_owned());
        EventContent { regarding, level, reason: "UnknownVnicProfile", action: "Stamp", note }
    }

    #[test]
    fn event_has_fields_of_the_api_and_an_escaped_note() {
        let controller = "oke.oraclecloud.com/oke-node-controller";
        let reporter = Reporter { controller, instance: "oke-node-controller-0".to_owned() };
        let note = "\u{1b}[2J no profile \"x\"\n";
        let written = event(&content("node-a".to_owned(), note), &reporter, Timestamp::from_second(1).unwrap());
        let expected = serde_json::json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": { "namespace": "default" },
            "action": "Stamp",
            "eventTime": "1970-01-01T00:00:01.000000Z",
            "note": "\\u{1b}[2J no profile \"x\"\\n",
            "reason": "UnknownVnicProfile",
            "regarding": { "apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "4711" },
            "reportingController": "oke.oraclecloud.com/oke-node-controller",
            "reportingInstance": "oke-node-controller-0",
            "type": "Warning"
        });
        assert_eq!(serde_json::to_value(written).unwrap(), expected);
    }

    #[test]
    fn name_is_valid_for_every_object_name() {
        for end in ["..", ".-", "--", "a.", "a-", "aa"] {
            let object = format!("{}{}{end}yz", "l".repeat(100), ".m".repeat(67));
            let name = unique_name(&content(object, ""), Timestamp::from_second(1_800_000_000).unwrap());
            let is_label = |part: &str| !part.is_empty() && !part.starts_with('-') && !part.ends_with('-');
            assert!(name.len() <= 253 && name.split('.').all(is_label), "{name}");
        }
    }

    #[test]
    fn long_note_is_cut_between_characters() {
        assert_eq!(cut(&"é".repeat(600), MAX_NOTE).len(), MAX_NOTE);
        assert_eq!(cut("aé", 2), "a");
    }
}
