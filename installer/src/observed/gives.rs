//! What pods get by a configuration, and of which plugins they get no network.

/// What pods get by a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// A network that is not ours: its own, or that of what it calls.
    Network,
    /// What it calls gives them, and that stands elsewhere: it may be ours, or another network.
    Unknown,
    /// What it calls gives them: ours, or what else the directory holds.
    Others,
    /// None: every runtime has a loopback link made by itself.
    Nothing,
}

/// What calls others' networks, of which ours may be one.
pub(super) const META: [&str; 2] = ["multus", "multus-shim"];

/// What gives a pod its loopback link alone; some distributions bring a configuration of it.
pub(super) const LOOPBACK: &str = "loopback";
