//! Our failures as CNI errors: a stable code, what was being done, the cause, and what to do next.

use std::path::Path;

use cni::{Error, ErrorCode};
use datapath::{Change, Object, Place};

/// Our codes: 100 and above; the specification's are below. They never change their meaning.
pub mod code {
    use cni::ErrorCode;

    /// A state file cannot be read, written or understood.
    pub const STATE: ErrorCode = ErrorCode(101);
    /// No address is free.
    pub const NO_ADDRESS: ErrorCode = ErrorCode(102);
    /// Another program's link has the host link's name.
    pub const LINK_COLLISION: ErrorCode = ErrorCode(103);
    /// The kernel refused a step.
    pub const STEP_FAILED: ErrorCode = ErrorCode(104);
    /// The kernel did not answer.
    pub const UNOBSERVABLE: ErrorCode = ErrorCode(105);
    /// The pod has a link of that name already.
    pub const INTERFACE_EXISTS: ErrorCode = ErrorCode(106);
    /// 107: CHECK found objects that differ from the desired network.
    pub const CHECK_DIFFERS: ErrorCode = ErrorCode(107);
    /// CHECK found no allocation.
    pub const NOT_ALLOCATED: ErrorCode = ErrorCode(108);
    /// Something could not be taken down and is still there.
    pub const LEFT_OVER: ErrorCode = ErrorCode(109);
}

/// An address-management failure during ADD or CHECK.
pub fn of_ipam(error: &ipam::Error) -> Error {
    let (code, next) = match error {
        ipam::Error::NoPools { .. } => (
            ErrorCode::TRY_AGAIN_LATER,
            "wait; `oke-node-agent why-not-ready` in the agent's pod of this node says what it waits for",
        ),
        ipam::Error::FamilyMissing { .. } => (
            ErrorCode::TRY_AGAIN_LATER,
            "wait; `oke-node-agent status` in the agent's pod of this node says what the VNICs lack",
        ),
        ipam::Error::Exhausted(shortage) if shortage.vnics == 0 => (
            code::NO_ADDRESS,
            "`oke-node-agent status` in the agent's pod of this node lists the VNICs and their purpose",
        ),
        ipam::Error::Exhausted(_) => (
            code::NO_ADDRESS,
            "delete pods, lower the kubelet's maxPods, or give the node more addresses; `oke-node-agent pools` in the agent's pod of this node shows the counts",
        ),
        ipam::Error::NoAllocation(_) => {
            (ErrorCode::TRY_AGAIN_LATER, "its record was removed while it was added; the runtime tries again")
        }
        ipam::Error::TooNew { .. } => {
            (code::STATE, "a newer version wrote it: install that again, or drain the node, reboot it and uncordon it")
        }
        ipam::Error::Damaged { path, .. } if path.ends_with("pools.json") => {
            (code::STATE, "the node agent writes it again within a minute")
        }
        ipam::Error::Damaged { .. } => {
            (code::STATE, "the next ADD or DEL sets it aside and writes it again from what the kernel knows")
        }
        ipam::Error::Read { .. } => (
            code::STATE,
            "check `ls -l` of the file and `dmesg`; do not delete or move files of this directory while pods run on the node",
        ),
        ipam::Error::Lock { source, .. } if source.kind() == std::io::ErrorKind::TimedOut => (
            ErrorCode::TRY_AGAIN_LATER,
            "another plugin process holds the lock: `fuser -v` on the file names it; end it if it lasts longer than a minute",
        ),
        ipam::Error::Collision { .. } => (code::STATE, "delete and create one of the two pods: it gets another name"),
        _ => (code::STATE, "check that the state directory is writable and has space"),
    };
    answer_of(code, error, next)
}

/// A failure to build or look at the network.
pub fn of_datapath(error: &datapath::Error) -> Error {
    let (code, next) = match error {
        datapath::Error::Apply { step, .. }
            if error.is_already_exists()
                && step.place == Place::Pod
                && matches!(step.change, Change::Add(Object::Route(_))) =>
        {
            (
                code::INTERFACE_EXISTS,
                "another interface of the pod has the default route, and only one network can set it: remove \
                 vcn-native from the pod's additional networks; vnic-attach gives a pod more interfaces",
            )
        }
        _ if error.is_already_exists() => (
            code::INTERFACE_EXISTS,
            "another program created this object: find that program, then remove or rename the object",
        ),
        datapath::Error::Apply { left_over, .. } if left_over.is_empty() => (
            code::STEP_FAILED,
            "the details give the kernel's reason, and nothing was left behind; `oke-node-agent plan` in the agent's pod \
             of this node says what the host lacks",
        ),
        datapath::Error::Apply { .. } => (
            code::STEP_FAILED,
            "the details give the kernel's reason and what could not be undone, which DEL tries again",
        ),
        datapath::Error::Observe { .. } => {
            (code::UNOBSERVABLE, "the details give the kernel's reason; the runtime tries again")
        }
        datapath::Error::Collision { .. } => (code::LINK_COLLISION, "remove or rename that link"),
    };
    let mut answer = answer_of(code, error, next);
    if let datapath::Error::Apply { left_over, .. } = error {
        for failure in left_over {
            answer = answer.with_details("could not be undone").caused_by(failure);
        }
    }
    answer
}

/// The pod's namespace cannot be opened or entered.
pub fn of_netns(path: &Path, error: &netlink::Error) -> Error {
    let msg = format!("cannot use network namespace {}; the runtime must create it before ADD", path.display());
    Error::new(ErrorCode::INVALID_NETNS, msg).caused_by(error)
}

/// The host's own netlink socket cannot be had.
pub fn of_host(error: &netlink::Error) -> Error {
    Error::new(code::UNOBSERVABLE, "opening a netlink socket failed; the runtime must run CNI plugins as root")
        .caused_by(error)
}

/// The message, the next step, and below it the causes, each once.
fn answer_of(code: ErrorCode, error: &dyn std::error::Error, next: &str) -> Error {
    let answer = Error::new(code, format!("{error}; {next}"));
    match error.source() {
        Some(cause) => answer.caused_by(cause),
        None => answer,
    }
}
