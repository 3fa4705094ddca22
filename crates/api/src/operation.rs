//! What the Pod of an operation reports: the termination message of its container. It is untrusted: the kubelet of the node writes it.

use serde::{Deserialize, Serialize};
use vcn::{excerpt, printable};

use crate::condition::Reason as _;
use crate::condition::reason::TaskReason;

/// The version of reports; another one is refused.
const VERSION: u8 = 1;
/// The most bytes of a termination message that a kubelet reads.
const REPORT_MAX: usize = 4096;
/// The most characters of a message.
const MESSAGE_MAX: usize = 160;
/// The reasons that an operation may report.
const REASONS: [TaskReason; 6] = [
    TaskReason::Succeeded,
    TaskReason::UnitNotFound,
    TaskReason::UnitNotActive,
    TaskReason::NotGrown,
    TaskReason::OperationFailed,
    TaskReason::CaptureFailed,
];

/// The result of an operation on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationReport {
    /// `Succeeded`, or why not.
    pub reason: TaskReason,
    /// For people, one line.
    pub message: String,
    /// The size of the kubelet's file system in bytes, after a growth.
    pub file_system: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    version: u8,
    reason: String,
    #[serde(default)]
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file_system: Option<u64>,
}

impl OperationReport {
    /// A report without sizes.
    pub fn new(reason: TaskReason, message: &str) -> Self {
        Self { reason, message: bounded(message), file_system: None }
    }

    /// As a termination message.
    pub fn to_text(&self) -> String {
        let document = Document {
            version: VERSION,
            reason: self.reason.as_str().to_owned(),
            message: bounded(&self.message),
            file_system: self.file_system,
        };
        serde_json::to_string(&document).unwrap_or_default()
    }

    /// From a termination message.
    ///
    /// # Errors
    /// When it is not such a report, in words.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.len() > REPORT_MAX {
            return Err(format!("the report has {} bytes, more than {REPORT_MAX}", text.len()));
        }
        let document: Document = serde_json::from_str(text).map_err(|error| format!("read the report: {error}"))?;
        if document.version != VERSION {
            return Err(format!("the report has version {}, not {VERSION}", document.version));
        }
        let reason = TaskReason::from_word(&document.reason).filter(|reason| REASONS.contains(reason));
        let reason = reason.ok_or_else(|| "the report has an unknown reason".to_owned())?;
        Ok(Self { reason, message: bounded(&document.message), file_system: document.file_system })
    }
}

fn bounded(message: &str) -> String {
    excerpt(&printable(message).replace('\n', " "), MESSAGE_MAX).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_read_as_it_was_written() {
        let report = OperationReport {
            file_system: Some(107_374_182_400),
            ..OperationReport::new(TaskReason::Succeeded, "grown by 50 GiB")
        };
        assert_eq!(OperationReport::read(&report.to_text()), Ok(report));
    }

    #[test]
    fn untrusted_report_is_bounded_and_of_known_reasons() {
        let long = OperationReport::new(TaskReason::OperationFailed, &"\u{1b}[31mé".repeat(9999)).to_text();
        let read = OperationReport::read(&long).unwrap();
        assert!(read.message.chars().count() <= 161 && !read.message.contains('\u{1b}'), "{read:?}");
        for text in [
            "",
            "{}",
            "null",
            r#"{"version":2,"reason":"Succeeded"}"#,
            r#"{"version":1,"reason":"Replaced"}"#,
            r#"{"version":1,"reason":"Succeeded","fileSystem":-1}"#,
            &format!(r#"{{"version":1,"reason":"Succeeded","message":"{}"}}"#, "a".repeat(4096)),
        ] {
            assert!(OperationReport::read(text).is_err(), "{text}");
        }
    }
}
