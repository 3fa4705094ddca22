//! The labels of the agent's metrics.

use resident::labels;

labels! {
    ReconcileKind { cause: &'static str, result: &'static str }
    ChangeKind { noun: String, cause: &'static str }
    MetadataRequest { document: &'static str, result: &'static str }
    VerbPhase { plugin: String, verb: String, phase: String, code: u32 }
    FollowUp { what: &'static str, result: &'static str }
    AttachmentState { state: &'static str }
    Decision { install: String, decided_by: String, status: String }
    SourceName { source: &'static str }
    PoolState { vnic: String, link: String, family: String, state: &'static str }
    ConditionLabels { reason: String, subject: String, blocking: String }
    SignalResult { signal: String, result: &'static str }
    SignalName { signal: String }
    FaultyDeviceName { signal: String, device: String }
    PolicyChange { action: &'static str, result: &'static str }
    PolicyItemState { state: &'static str }
    Outcome { result: &'static str }
}
