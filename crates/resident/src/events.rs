//! Events of Kubernetes (events.k8s.io/v1): what happened to an object, for people who read `kubectl describe`. What is worth
//! telling, and when it is told again, is the program's to say; here is what an event looks like and how one is written.
//! kube's own recorder is not used: it folds news of one reason into the first one's words.

mod told;

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

pub use told::Told;

/// What happened to an object.
#[derive(Clone, Debug, PartialEq)]
pub struct News {
    /// The object, with its uid.
    pub regarding: ObjectReference,
    /// Whether somebody should look at it.
    pub level: Level,
    /// A stable word, in CamelCase.
    pub reason: &'static str,
    /// What the program was doing, in CamelCase.
    pub action: &'static str,
    /// In words, with what to do next; cut after a thousand bytes.
    pub note: String,
}

/// Whether somebody should look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// For the record.
    Normal,
    /// Somebody should.
    Warning,
}

/// Who tells, as events say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reporter {
    /// The program, as a qualified name.
    pub controller: &'static str,
    /// This pod's name.
    pub instance: String,
}

/// Why an event was not written.
#[derive(Debug, Error)]
pub enum Unwritten {
    /// The API server refused it.
    #[error("{message}")]
    Refused {
        /// The HTTP status.
        code: u16,
        /// In its words.
        message: String,
    },
    /// It could not be asked.
    #[error(transparent)]
    Unreachable(kube::Error),
    /// It does not answer.
    #[error("no answer within {DEADLINE:?}")]
    Silent,
}

impl Unwritten {
    /// Whether the same may be written later: the API server had no time, had trouble of its own, or did not answer.
    #[must_use]
    pub const fn is_passing(&self) -> bool {
        match self {
            Self::Refused { code, .. } => *code == 429 || *code >= 500,
            Self::Unreachable(_) | Self::Silent => true,
        }
    }
}

/// For one write.
const DEADLINE: Duration = Duration::from_secs(10);
/// Bytes; the API server takes 1024.
const LONGEST_NOTE: usize = 1000;
/// The HTTP status where there is an event of that name.
const TAKEN: u16 = 409;
/// Where events of objects without a namespace are.
const NAMESPACE: &str = "default";

/// Writes one event about an object that has no namespace of its own, by the first of some names that no other has.
///
/// # Errors
/// When it is not there afterwards; where there was no answer, it may be all the same.
pub async fn write(
    client: Client,
    reporter: &Reporter,
    news: &News,
    names: impl IntoIterator<Item = String>,
) -> Result<(), Unwritten> {
    let mut event = event(news, reporter, Timestamp::now());
    let mut taken = Err(Unwritten::Refused { code: TAKEN, message: "no name is left for it".to_owned() });
    for name in names {
        event.metadata.name = Some(name);
        taken = create(client.clone(), &event).await;
        if !matches!(taken, Err(Unwritten::Refused { code: TAKEN, .. })) {
            break;
        }
    }
    taken
}

/// Writes an event that was made before, once, with a deadline: however often it is tried, there is one of it.
///
/// # Errors
/// As [`write`].
pub async fn post(client: Client, event: &Event) -> Result<(), Unwritten> {
    match create(client, event).await {
        // Its name is its own: it was written before, and the answer was lost.
        Err(Unwritten::Refused { code: TAKEN, .. }) => Ok(()),
        written => written,
    }
}

async fn create(client: Client, event: &Event) -> Result<(), Unwritten> {
    let api: Api<Event> = Api::namespaced(client, NAMESPACE);
    match timeout(DEADLINE, api.create(&PostParams::default(), event)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(kube::Error::Api(status))) => {
            Err(Unwritten::Refused { code: status.code, message: status.message.clone() })
        }
        Ok(Err(error)) => Err(Unwritten::Unreachable(error)),
        Err(_) => Err(Unwritten::Silent),
    }
}

/// News as an event; it has a name of its own by the time, to the nanosecond.
#[must_use]
pub fn event(news: &News, reporter: &Reporter, now: Timestamp) -> Event {
    let name = news.regarding.name.clone().unwrap_or_default();
    // As every recorder names them: unique by the nanosecond. Object names have room for it up to 236 bytes.
    // What is cut off may leave a dot or a dash at the end, which no name has before a dot.
    let name = format!("{}.{:x}", cut(&name, 236).trim_end_matches(['.', '-']), now.as_nanosecond());
    Event {
        metadata: ObjectMeta { name: Some(name), namespace: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() },
        action: Some(news.action.to_owned()),
        reason: Some(news.reason.to_owned()),
        type_: Some(
            match news.level {
                Level::Normal => "Normal",
                Level::Warning => "Warning",
            }
            .to_owned(),
        ),
        // kubectl prints it as it is, and it may have words of a document.
        note: Some(cut(&printable(&news.note), LONGEST_NOTE).to_owned()),
        regarding: Some(news.regarding.clone()),
        event_time: Some(MicroTime(now)),
        reporting_controller: Some(reporter.controller.to_owned()),
        reporting_instance: Some(cut(&reporter.instance, 128).to_owned()),
        ..Event::default()
    }
}

/// The beginning, at most so many bytes, no character in pieces.
fn cut(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_the_api_server_takes_it() {
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some("node-a".to_owned()),
            uid: Some("4711".to_owned()),
            ..ObjectReference::default()
        };
        let (level, note) = (Level::Warning, "no profile \"x\"".to_owned());
        let news = News { regarding, level, reason: "UnknownVnicProfile", action: "Stamp", note };
        let controller = "oke.oraclecloud.com/oke-node-controller";
        let reporter = Reporter { controller, instance: "oke-node-controller-0".to_owned() };
        let written = event(&news, &reporter, Timestamp::from_second(1).unwrap());
        let expected = serde_json::json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": { "name": "node-a.3b9aca00", "namespace": "default" },
            "action": "Stamp",
            "eventTime": "1970-01-01T00:00:01.000000Z",
            "note": "no profile \"x\"",
            "reason": "UnknownVnicProfile",
            "regarding": { "apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "4711" },
            "reportingController": "oke.oraclecloud.com/oke-node-controller",
            "reportingInstance": "oke-node-controller-0",
            "type": "Warning"
        });
        assert_eq!(serde_json::to_value(written).unwrap(), expected);
        let forged = News { note: "\u{1b}[2Jall is well\n".to_owned(), ..news };
        let written = event(&forged, &reporter, Timestamp::from_second(1).unwrap());
        assert_eq!(written.note.as_deref(), Some("\\u{1b}[2Jall is well\\n"));
    }

    #[test]
    fn whatever_an_object_is_called_the_event_has_a_name_that_is_one() {
        let reporter = Reporter { controller: "a.b/c", instance: "c-0".to_owned() };
        for end in ["..", ".-", "--", "a.", "a-", "aa"] {
            let name = Some(format!("{}{}{end}yz", "l".repeat(100), ".m".repeat(67)));
            let regarding = ObjectReference { name, ..ObjectReference::default() };
            let (level, note) = (Level::Normal, String::new());
            let news = News { regarding, level, reason: "Ready", action: "Attach", note };
            let name = event(&news, &reporter, Timestamp::from_second(1_800_000_000).unwrap()).metadata.name.unwrap();
            let is_label = |part: &str| !part.is_empty() && !part.starts_with('-') && !part.ends_with('-');
            assert!(name.len() <= 253 && name.split('.').all(is_label), "{name}");
        }
    }

    #[test]
    fn a_long_note_is_cut_between_characters() {
        assert_eq!(cut(&"é".repeat(600), LONGEST_NOTE).len(), LONGEST_NOTE);
        assert_eq!(cut("aé", 2), "a");
    }
}
