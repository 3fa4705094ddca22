//! Which kernel settings a policy may name: a table of keys with their scope, and the keys that are always refused. A node may add
//! keys to the table (`TUNABLE_KEYS`), and never one that is refused.

mod refused;
mod table;

use std::collections::BTreeSet;

use crate::refusal::Refusal;
use crate::value::Form;

pub(crate) use refused::is_of_agent;
pub use table::KEYS;

/// A key that policies may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The name with periods, as `sysctl` prints it: `vm.max_map_count`.
    pub name: &'static str,
    /// Where its value holds.
    pub scope: Scope,
    /// The form of its values.
    pub form: Form,
}

/// Where the value of a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// On the whole node, for pods as well.
    Node,
    /// In the host's network only: each pod's network namespace has a value of its own.
    HostNetwork,
}

vcn::words!(Scope: Node = "node", HostNetwork = "host network only");

/// Where a key is not in the table.
pub(crate) const OUTSIDE: Refusal = Refusal {
    reason: "the table of keys does not have it",
    next_step: "Add it to TUNABLE_KEYS of the agents, if the nodes' owner agrees.",
};

impl Key {
    /// The key's path below /proc/sys.
    pub fn path(&self) -> String {
        path(self.name)
    }

    /// The key of a name in the table.
    pub fn named(name: &str) -> Option<&'static Self> {
        KEYS.binary_search_by(|key| key.name.cmp(name)).ok().and_then(|index| KEYS.get(index))
    }
}

/// The path of a key below /proc/sys.
pub fn path(name: &str) -> String {
    name.replace('.', "/")
}

/// Checks a setting: its key, and the form of its value. `added` are the keys that the node adds. The controller, which does not know
/// them, takes [`is_never_allowed`].
///
/// # Errors
/// If a policy may not set it.
pub fn check(name: &str, value: &str, added: &BTreeSet<String>) -> Result<Scope, Refusal> {
    if let Some(refusal) = is_never_allowed(name) {
        return Err(refusal);
    }
    let (scope, form) = match Key::named(name) {
        Some(key) => (key.scope, key.form),
        None if added.contains(name) => (scope_of_added(name), Form::Any),
        None => return Err(OUTSIDE),
    };
    form.check(value).map(|()| scope)
}

/// Why a key is refused whatever the node adds to the table.
pub fn is_never_allowed(name: &str) -> Option<Refusal> {
    refused::refusal(name)
}

/// Why a file of the host may not set a key. Its scope does not matter: systemd sets it in the host's namespaces.
pub(crate) fn is_refused_in_files(name: &str) -> Option<Refusal> {
    refused::refusal_in_files(name)
}

/// The key that the kernel sets to 0 when this one is set, in `vm`: an amount is given in bytes or in percent.
pub(crate) fn counterpart(name: &str) -> Option<&'static str> {
    const PAIRS: [[&str; 2]; 2] =
        [["vm.dirty_background_bytes", "vm.dirty_background_ratio"], ["vm.dirty_bytes", "vm.dirty_ratio"]];
    PAIRS.iter().find_map(|[one, other]| match name {
        name if name == *one => Some(*other),
        name if name == *other => Some(*one),
        _ => None,
    })
}

fn scope_of_added(name: &str) -> Scope {
    if name.starts_with("net.") { Scope::HostNetwork } else { Scope::Node }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(keys: &[&str]) -> BTreeSet<String> {
        keys.iter().map(|key| (*key).to_owned()).collect()
    }

    #[test]
    fn table_is_sorted_and_has_no_refused_key() {
        assert!(KEYS.is_sorted_by(|one, other| one.name < other.name));
        assert!((65..=90).contains(&KEYS.len()), "{}", KEYS.len());
        for key in KEYS {
            assert_eq!(is_never_allowed(key.name), None, "{}", key.name);
            assert!(key.path().split('/').all(|part| !part.is_empty()), "{}", key.name);
            let is_of_pods = key.scope == Scope::Node;
            assert!(is_of_pods || key.name.starts_with("net."), "{}", key.name);
        }
    }

    #[test]
    fn refused_key_has_a_reason_and_a_next_step() {
        for (key, part) in [
            ("net.ipv4.ip_forward", "the agent"),
            ("net.ipv6.conf.all.forwarding", "the agent"),
            ("net.ipv4.conf.all.rp_filter", "the agent"),
            ("net.ipv4.conf.default.arp_announce", "the agent"),
            ("net.ipv6.conf.default.accept_ra", "the agent"),
            ("net.ipv6.conf.all.disable_ipv6", "the agent"),
            ("net.ipv4.conf.all.route_localnet", "the agent"),
            ("net.ipv4.conf.all.src_valid_mark", "the agent"),
            ("net.ipv6.conf.all.proxy_ndp", "the agent"),
            ("net.ipv4.conf.ens5.rp_filter", "one link"),
            ("net.ipv4.neigh.ens5.gc_stale_time", "one link"),
            ("vm.overcommit_memory", "the kubelet"),
            ("vm.panic_on_oom", "the kubelet"),
            ("kernel.panic", "the kubelet"),
            ("kernel.panic_on_oops", "the kubelet"),
            ("kernel.keys.root_maxkeys", "the kubelet"),
            ("kernel.keys.root_maxbytes", "the kubelet"),
            ("kernel.pid_max", "PID namespace"),
            ("kernel.shmmax", "IPC namespace"),
            ("kernel.msgmnb", "IPC namespace"),
            ("kernel.sem", "IPC namespace"),
            ("fs.mqueue.msg_max", "IPC namespace"),
            ("user.max_user_namespaces", "user namespace"),
            ("kernel.hostname", "UTS namespace"),
            ("kernel.core_pattern", "as root"),
            ("kernel.modprobe", "as root"),
            ("fs.binfmt_misc.register", "as root"),
            ("vm.nr_hugepages", "the kubelet"),
            ("vm.nr_overcommit_hugepages", "the kubelet"),
            ("vm.memfd_noexec", "PID namespace"),
            ("kernel.cad_pid", "PID namespace"),
            ("kernel.kexec_load_disabled", "as root"),
            ("kernel.sysctl_writes_strict", "as root"),
        ] {
            let refusal = check(key, "1", &added(&[key])).unwrap_err();
            assert!(refusal.reason.contains(part), "{key}: {refusal}");
            assert!(refusal.next_step.ends_with('.') && refusal.next_step.len() > 20, "{key}: {refusal}");
        }
    }

    /// One table of neighbours serves all namespaces, and only the time after which an entry is stale is of a link.
    #[test]
    fn scope_is_the_kernels_and_not_the_names() {
        for (key, scope) in [
            ("net.ipv4.neigh.default.gc_interval", Scope::Node),
            ("net.ipv4.neigh.default.gc_thresh3", Scope::Node),
            ("net.ipv6.neigh.default.gc_thresh1", Scope::Node),
            ("net.ipv4.neigh.default.gc_stale_time", Scope::HostNetwork),
            ("net.ipv6.neigh.default.gc_stale_time", Scope::HostNetwork),
            ("net.core.optmem_max", Scope::Node),
            ("net.core.somaxconn", Scope::HostNetwork),
            ("net.ipv4.tcp_mem", Scope::Node),
        ] {
            assert_eq!(Key::named(key).map(|key| key.scope), Some(scope), "{key}");
        }
    }

    #[test]
    fn node_adds_keys_that_are_not_refused() {
        assert_eq!(check("vm.max_map_count", "262144", &added(&[])), Ok(Scope::Node));
        assert_eq!(check("net.core.somaxconn", "16384", &added(&[])), Ok(Scope::HostNetwork));
        assert_eq!(check("dev.raid.speed_limit_max", "1", &added(&[])), Err(OUTSIDE));
        assert_eq!(check("dev.raid.speed_limit_max", "1", &added(&["dev.raid.speed_limit_max"])), Ok(Scope::Node));
        assert_eq!(check("net.ipv4.new_key", "1", &added(&["net.ipv4.new_key"])), Ok(Scope::HostNetwork));
        assert!(check("vm.max_map_count", "many", &added(&[])).is_err());
        for odd in ["", ".", "vm", "vm..x", "vm/max_map_count", "../etc/passwd", "VM.MAX_MAP_COUNT"] {
            assert_eq!(check(odd, "1", &added(&[])), Err(OUTSIDE), "{odd}");
        }
    }
}
