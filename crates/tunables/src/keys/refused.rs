//! Keys that no policy sets, each with what to do instead.

use crate::refusal::Refusal;

/// Settings of a link that the agent sets, on links that it configures.
const OF_THE_AGENT: &[&str] = &[
    "accept_dad",
    "accept_ra",
    "disable_ipv6",
    "forwarding",
    "mc_forwarding",
    "proxy_arp",
    "proxy_arp_pvlan",
    "proxy_delay",
    "proxy_ndp",
    "route_localnet",
    "rp_filter",
    "src_valid_mark",
];

/// `ip_forward` and settings of links: pods' traffic depends on them.
const AGENT: Refusal = Refusal {
    reason: "the agent sets it, and pods' traffic depends on it",
    next_step: "Leave it out; on links that the agent does not configure, use settings.links[].sysctls.",
};
const LINK: Refusal = Refusal {
    reason: "it is a setting of one link",
    next_step: "Use settings.links[].sysctls, which selects links by more than a name.",
};
const KUBELET: Refusal = Refusal {
    reason: "the kubelet sets it, and does not start with another value if protectKernelDefaults is true",
    next_step: "Leave it out of the policy.",
};
const HUGE_PAGES: Refusal = Refusal {
    reason: "the kubelet counts huge pages when it starts, so a later change makes the node's capacity wrong",
    next_step: "Reserve huge pages in the node pool's cloud-init, before the kubelet starts.",
};
const PID: Refusal = Refusal {
    reason: "each PID namespace has a value of its own, and a change would apply to the agent's namespace only",
    next_step: "Set it in the node pool's cloud-init.",
};
const IPC: Refusal = Refusal {
    reason: "each IPC namespace has a value of its own, and a change would apply to the agent's namespace only",
    next_step: "Set it per pod: spec.securityContext.sysctls.",
};
const USER: Refusal = Refusal {
    reason: "each user namespace has a value of its own, and the kernel refuses a change from a container",
    next_step: "Set it in the node pool's cloud-init.",
};
const UTS: Refusal = Refusal {
    reason: "each UTS namespace has a value of its own, and the kubelet's node name depends on it",
    next_step: "Leave it out of the policy.",
};
const CODE: Refusal = Refusal {
    reason: "the kernel runs the program that it names as root",
    next_step: "Set it in the image of the node.",
};

/// Keys by their whole name.
const NAMED: &[(&str, Refusal)] = &[
    ("fs.suid_dumpable", CODE),
    ("kernel.cad_pid", PID),
    ("kernel.core_pattern", CODE),
    ("kernel.core_pipe_limit", CODE),
    ("kernel.domainname", UTS),
    ("kernel.hostname", UTS),
    ("kernel.hotplug", CODE),
    ("kernel.kexec_load_disabled", CODE),
    ("kernel.keys.root_maxbytes", KUBELET),
    ("kernel.keys.root_maxkeys", KUBELET),
    ("kernel.modprobe", CODE),
    ("kernel.modules_disabled", CODE),
    ("kernel.ns_last_pid", PID),
    ("kernel.panic", KUBELET),
    ("kernel.panic_on_oops", KUBELET),
    ("kernel.pid_max", PID),
    ("kernel.poweroff_cmd", CODE),
    ("kernel.sem", IPC),
    ("kernel.sem_next_id", IPC),
    ("kernel.shm_rmid_forced", IPC),
    ("kernel.sysctl_writes_strict", CODE),
    ("net.ipv4.ip_forward", AGENT),
    ("vm.memfd_noexec", PID),
    ("vm.nr_hugepages", HUGE_PAGES),
    ("vm.nr_hugepages_mempolicy", HUGE_PAGES),
    ("vm.nr_overcommit_hugepages", HUGE_PAGES),
    ("vm.overcommit_memory", KUBELET),
    ("vm.panic_on_oom", KUBELET),
];

/// Keys by their first part.
const PREFIXED: &[(&str, Refusal)] = &[
    ("fs.binfmt_misc.", CODE),
    ("fs.mqueue.", IPC),
    ("kernel.auto_msgmni", IPC),
    ("kernel.msg", IPC),
    ("kernel.shm", IPC),
    ("kernel.usermodehelper.", CODE),
    ("user.", USER),
];

/// Why a key is refused.
pub(super) fn refusal(name: &str) -> Option<Refusal> {
    let named = NAMED.iter().find(|(key, _)| *key == name);
    let prefixed = || PREFIXED.iter().find(|(prefix, _)| name.starts_with(prefix));
    named.or_else(prefixed).map(|(_, refusal)| *refusal).or_else(|| of_links(name))
}

/// Why a file of the host may not set a key: it runs programs, or the agent or the kubelet sets it.
pub(super) fn refusal_in_files(name: &str) -> Option<Refusal> {
    match refusal(name)? {
        LINK => is_of_agent(name.rsplit('.').next()?).then_some(AGENT),
        refusal => [CODE, AGENT, KUBELET].contains(&refusal).then_some(refusal),
    }
}

/// `net.ipv4.conf.LINK.KEY` and `net.ipv4.neigh.LINK.KEY`. The name of a link may have periods.
fn of_links(name: &str) -> Option<Refusal> {
    let rest = name.strip_prefix("net.ipv4.").or_else(|| name.strip_prefix("net.ipv6."))?;
    let rest = rest.strip_prefix("conf.").or_else(|| rest.strip_prefix("neigh."))?;
    let (link, key) = rest.rsplit_once('.')?;
    match link {
        "all" | "default" => is_of_agent(key).then_some(AGENT),
        _ => Some(LINK),
    }
}

/// Whether the agent sets a setting of links that it configures.
pub(crate) fn is_of_agent(key: &str) -> bool {
    key.starts_with("arp_") || key.starts_with("accept_ra_") || OF_THE_AGENT.contains(&key)
}
