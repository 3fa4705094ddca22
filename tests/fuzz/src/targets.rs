//! The list of targets.

mod channel;
mod documents;
mod interfaces;
mod protocol;
mod state;
mod store;

/// Bytes in, nothing out; a panic is a finding.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of its folder in the corpus.
    pub name: &'static str,
    /// The reader and what must be true of its answer.
    pub run: fn(&[u8]),
    /// Sound inputs as our own code writes them today, so that the corpus does not age.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every target, in the order in which they run.
#[must_use]
pub fn all() -> Vec<Target> {
    vec![
        Target { name: "configuration", run: protocol::configuration, seeds: protocol::configurations },
        Target { name: "environment", run: protocol::environment, seeds: none },
        Target { name: "previous_result", run: protocol::previous_result, seeds: protocol::results },
        Target { name: "interfaces", run: interfaces::annotation, seeds: interfaces::annotations },
        Target { name: "attach_configuration", run: interfaces::configuration, seeds: interfaces::configurations },
        Target { name: "pools", run: state::pools, seeds: state::written_pools },
        Target { name: "allocations", run: state::index, seeds: store::written_index },
        Target { name: "allocation", run: state::record, seeds: store::written_records },
        Target { name: "state_folder", run: store::folder, seeds: store::written_folder },
        Target { name: "native_pod_network", run: documents::native_pod_network, seeds: documents::golden_networks },
        Target { name: "verb_record", run: documents::verb_record, seeds: documents::written_records },
        Target { name: "announcement", run: channel::announcement, seeds: channel::announcements },
        Target { name: "summary", run: channel::summary, seeds: channel::summaries },
        Target { name: "health_rules", run: channel::rules, seeds: channel::rule_files },
        Target { name: "probe_request", run: channel::probe_request, seeds: channel::probe_requests },
        Target { name: "identifiers", run: documents::identifiers, seeds: none },
    ]
}

/// The target of that name.
#[must_use]
pub fn named(name: &str) -> Option<Target> {
    all().into_iter().find(|target| target.name == name)
}

const fn none() -> Vec<Vec<u8>> {
    Vec::new()
}
