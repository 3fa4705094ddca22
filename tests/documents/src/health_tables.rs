//! The tables of docs/signals.md, docs/privileges.md and docs/operator.md.

use std::fmt::Write as _;

use health::collector::Signal;
use health::collectors::{self, KINDS};
use health::fleet::controller_signal_healthy;
use health::reason::Reason;
use health::rules::Rules;

/// Signal, source, rules, reason, remedy.
pub fn signals() -> String {
    let rules = Rules::shipped().rules;
    let mut text = String::from("| signal | source | healthy | why it matters | what to do |\n|---|---|---|---|---|\n");
    for signal in collectors::all_signals() {
        let Signal { name, unit, source, why, remedy } = signal;
        let of_it = rules.iter().filter(|rule| rule.signal == *name);
        let bounds = of_it.map(|rule| {
            let samples = match (rule.samples.bad, rule.samples.of) {
                (1, 1) => String::new(),
                (bad, of) => format!(", {bad} of {of} samples"),
            };
            let shapes = if rule.shapes.is_empty() { String::new() } else { format!(" on {}", rule.shapes.join(", ")) };
            let memory = rule.memory.to_string();
            let sizes = if memory.is_empty() { memory } else { format!(" with {memory}") };
            format!("{}{shapes}{sizes} (`{}`, {}{samples})", rule.bound_text(*unit), rule.name, rule.severity)
        });
        let bounds = bounds.collect::<Vec<_>>().join("<br>");
        let bounds = match &*bounds {
            "" => controller_signal_healthy(name).unwrap_or("information"),
            bounds => bounds,
        };
        let _ = writeln!(text, "| `{name}` | {source} | {bounds} | {why} | {remedy} |");
    }
    text
}

/// Collector, interval, what it needs.
pub fn privileges() -> String {
    let mut text = String::from("| collector | every | reads | needs |\n|---|---|---|---|\n");
    for kind in KINDS {
        let mut sources: Vec<&str> = kind.signals.iter().map(|signal| signal.source).collect();
        sources.dedup();
        let (name, every) = (kind.name, kind.every.as_secs());
        let _ = writeln!(text, "| `{name}` | {every} s | {} | {} |", sources.join("<br>"), kind.privilege);
    }
    text
}

/// The sections of docs/operator.md, each with the reasons that an operator clears there. A reason belongs to one section.
const SECTIONS: &[(&str, &[Reason])] = &[
    (
        "Sources do not answer",
        &[
            Reason::MetadataUnavailable,
            Reason::NativePodNetworkUnreadable,
            Reason::NativePodNetworkPending,
            Reason::VnicAttachmentsUnreadable,
        ],
    ),
    (
        "A VNIC is missing, or its configuration fails",
        &[
            Reason::PrimaryLinkMissing,
            Reason::LinkMissing,
            Reason::VnicNotListed,
            Reason::VnicFamilyNotListed,
            Reason::PodFamilyNotListed,
            Reason::VnicUnreadable,
            Reason::ReturnPathMissing,
        ],
    ),
    (
        "An address or route cannot be used",
        &[
            Reason::NoUsableAddress,
            Reason::AddressesExhausted,
            Reason::HostAddressTaken,
            Reason::RouterUnknown,
            Reason::AddressRefused,
            Reason::RouteRefused,
            Reason::ApplicationResourcesOnly,
        ],
    ),
    (
        "The host's network is incomplete",
        &[
            Reason::HostNetworkFailed,
            Reason::HostNetworkDrifted,
            Reason::MainTableUnreachable,
            Reason::KernelLacksNft,
            Reason::NftFailed,
            Reason::ForwardingRejected,
        ],
    ),
    (
        "Another program interferes",
        &[
            Reason::RepairsUndone,
            Reason::NetworkManagerInterferes,
            Reason::ConflictingConfiguration,
            Reason::RoutingOverridden,
            Reason::PodTableShared,
        ],
    ),
    (
        "A pod's network is incomplete",
        &[
            Reason::PodNetworkBroken,
            Reason::PodLinkGone,
            Reason::AttachmentLeftOver,
            Reason::LinkNotReturned,
            Reason::LeftInPlace,
        ],
    ),
    (
        "A file of the runtime is wrong",
        &[
            Reason::InstallerFailed,
            Reason::RuntimeConfigurationBlocked,
            Reason::RuntimeConfigurationPreceded,
            Reason::RuntimeConfigurationLeft,
            Reason::RuntimeConfigurationMissing,
            Reason::PluginUnanswered,
            Reason::PluginMissing,
        ],
    ),
    (
        "The agent itself has a problem",
        &[
            Reason::Starting,
            Reason::ConfigurationInvalid,
            Reason::StateFailed,
            Reason::ChangesUnheard,
            Reason::PortUnavailable,
            Reason::ChannelUnavailable,
            Reason::LimitRaised,
            Reason::RepairWithoutEffect,
            Reason::SettingNotRestored,
        ],
    ),
];

/// One section per task: reason, state and effect, next step.
pub fn conditions() -> String {
    let row = |reason: &Reason| format!("| `{reason}` | {} | {} |\n", reason.meaning(), reason.next_step());
    let section = |(title, reasons): &(&str, &[Reason])| {
        let rows: String = reasons.iter().map(row).collect();
        format!("### {title}\n\n| reason | state and effect | next step |\n|---|---|---|\n{rows}")
    };
    SECTIONS.iter().map(section).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_one_section() {
        let mut listed: Vec<Reason> = SECTIONS.iter().flat_map(|(_, reasons)| reasons.iter().copied()).collect();
        listed.sort();
        assert_eq!(listed, Reason::ALL);
    }
}
