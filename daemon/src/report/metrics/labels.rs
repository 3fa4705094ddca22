//! The labels of our metrics.

use resident::labels;

labels! {
    Build { version: String }
    PassKind { cause: &'static str, result: &'static str }
    ChangeKind { noun: String, cause: &'static str }
    Question { document: &'static str, result: &'static str }
    Verb { plugin: String, verb: String, phase: String, code: u32 }
    Aftercare { what: &'static str, result: &'static str }
    Attachments { state: &'static str }
    Decided { install: String, decided_by: String, status: String }
    Source { source: &'static str }
    Pool { vnic: String, link: String, family: String, state: &'static str }
    ConditionOf { reason: String, subject: String, blocking: String }
    Told { result: &'static str }
    Reload { result: &'static str }
}
