//! The labels of our metrics.

use prometheus_client::encoding::EncodeLabelSet;

/// What a metric is broken down by.
pub(super) trait Labelled {
    /// The labels' names.
    const NAMES: &'static [&'static str];
}

macro_rules! labels {
    ($($name:ident { $($label:ident: $kind:ty),* })*) => {
        $(
            #[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
            pub(super) struct $name {
                $(pub(super) $label: $kind,)*
            }

            impl Labelled for $name {
                const NAMES: &'static [&'static str] = &[$(stringify!($label)),*];
            }
        )*
    };
}

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
    Reload { result: &'static str }
}
