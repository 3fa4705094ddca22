//! The stable words for why a condition holds or not, each with its meaning and what a person does about it: one list for
//! the controller and for docs/resources.md. A word, once published, keeps its meaning.

use crate::condition::ConditionStatus::{self, False, True, Unknown};
use crate::condition::ConditionType::{self, Attached as OnAttached, Configured as OnConfigured, Ready as OnReady};
use crate::condition::Reason;

macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident; $($word:ident $status:ident on $($kind:ident)+: $meaning:literal, $do:literal;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $(#[doc = $meaning] $word,)*
        }

        impl $name {
            /// Every word there is.
            pub const ALL: &'static [Self] = &[$(Self::$word),*];

            /// The word as it was written, if this version knows it.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.as_str() == word)
            }
        }

        impl Reason for $name {
            fn as_str(self) -> &'static str {
                match self { $(Self::$word => stringify!($word),)* }
            }

            fn status(self) -> ConditionStatus {
                match self { $(Self::$word => $status,)* }
            }

            fn on(self) -> &'static [ConditionType] {
                match self { $(Self::$word => &[$($kind),+],)* }
            }

            fn meaning(self) -> &'static str {
                match self { $(Self::$word => $meaning,)* }
            }

            fn to_do(self) -> &'static str {
                match self { $(Self::$word => $do,)* }
            }
        }
    };
}

reasons! {
    /// Why a VnicAttachment's condition is as it is. Ready has the word of whatever holds it up.
    AttachmentReason;
    Attached True on OnAttached:
        "The VNIC is on the instance.",
        "Nothing.";
    Ready True on OnReady:
        "The VNIC is attached with all its addresses, and the node's agent has set it up, or has not reported yet.",
        "Nothing.";
    Configured True on OnConfigured:
        "The node's agent has set the VNIC up.",
        "Nothing.";
    NotReported Unknown on OnConfigured:
        "The node's agent has not reported yet whether the VNIC is set up. Ready then depends on the VNIC alone.",
        "On the node: `oke-node-agent status`. An agent of an older version reports nothing; one whose node has no VNIC of its own neither.";
    NotConfigured False on OnConfigured OnReady:
        "The VNIC is attached, and the node's agent has not set it up. The message has the agent's word for why.",
        "On the node: `oke-node-agent status` and `why-not-ready`; docs/operator.md has what to do for each word.";
    InUse False on OnAttached OnReady:
        "The VNIC is to be detached, or to lose addresses, and pods on the node use it. No new pod gets it. The controller waits until the node's agent reports that none uses it.",
        "Delete the pods that use it: `oke-node-agent attachments` on the node lists them. Where the node cannot report any more, or pods may lose their network: `kubectl annotate vnica NAME oke.oraclecloud.com/force-detach=true`.";
    Pending Unknown on OnAttached OnReady:
        "The controller has not come to it yet.",
        "Wait some seconds. If it stays: is a controller the leader (`kubectl get lease -A`), and what does its log say?";
    Attaching False on OnAttached OnReady:
        "The cloud is making the VNIC.",
        "Wait: it takes 5 to 60 seconds.";
    InstanceBusy False on OnAttached OnReady:
        "Something else is being done with the instance: another VNIC of it is being attached or detached, or it is starting or stopping.",
        "Wait: an instance takes one VNIC after another. If it stays: the instance's state in the console.";
    PodNetworkPending False on OnAttached OnReady:
        "OKE is still making the node's pod network: the instance's NativePodNetwork is there and not SUCCESS. OKE takes every VNIC that is on the instance by then for one of the pods', and fails where one comes meanwhile. The VNIC is asked for when it has finished, looked for after pauses that double, from 15 seconds up to RETRY_MOST_SECONDS (two minutes unless it is set).",
        "Wait: a new node takes a minute or two. If it stays, the message has OKE's own reason: most often free addresses in the pod subnet, a limit of VNICs, or a missing policy.";
    PodNetworkUnknown Unknown on OnAttached OnReady:
        "The API server's answer tells the controller nothing of the instance's NativePodNetwork: a refusal, or what cannot be understood. Until it does, the controller attaches and detaches no VNIC of the instance: it might be in OKE's way, or take pods' network.",
        "The message has the API server's answer. 403: apply manifests/base/controller.yaml, whose ClusterRole has the right. Else `kubectl get npn -o yaml`, and the controller's log (`npn.unread`).";
    PodNetworkUnanswered Unknown on OnAttached OnReady:
        "The API server has not answered what the instance's NativePodNetwork is, twice in turn, and nothing else is known that stands in the way. Until it does, the controller attaches and detaches no VNIC of the instance; it asks again after pauses that double, from 15 seconds up to RETRY_MOST_SECONDS (two minutes unless it is set).",
        "Wait. If it stays: what ails the API server? The message has its answer, where there was one (429, 503), and the controller's log the rest (`npn.unread`).";
    UsedByPods False on OnAttached OnReady:
        "The VnicAttachment is being deleted, and the instance's NativePodNetwork names its VNIC: pods would lose their network. It is detached when it is named there no longer, or that is gone; looked for after pauses that double, from 15 seconds up to RETRY_MOST_SECONDS (two minutes unless it is set).",
        "Drain the node; then `kubectl delete npn …`, the name is in the message, or terminate the instance. To leave the VNIC to OKE, set spec.onDelete to Orphan.";
    Detaching False on OnAttached OnReady:
        "The VNIC is being taken off the instance.",
        "Wait. A VNIC that somebody else detached is attached again when it is gone.";
    DetachedOutOfBand False on OnAttached OnReady:
        "The VNIC was there and somebody else detached it. It is being attached again, with another OCID, MAC and other addresses.",
        "Find out who did it (the audit log, operation DetachVnic). To have it gone, delete the VnicAttachment.";
    AttachFailed False on OnAttached OnReady:
        "The cloud took the request to attach the VNIC, and let it go again before it was attached. It is asked for again after pauses that double, up to RETRY_MOST_SECONDS (two minutes unless it is set); others of the instance go on meanwhile.",
        "The instance's work requests and audit log in the console, operation AttachVnic: they may say what the API does not. Then the host: a reboot, or another instance.";
    DetachFailed False on OnAttached OnReady:
        "The VnicAttachment is being deleted; the cloud took the request to detach the VNIC, and it is attached as before. It is asked for again after pauses that double, up to RETRY_MOST_SECONDS (two minutes unless it is set).",
        "The instance's work requests and audit log in the console, operation DetachVnic. To have the VnicAttachment go without its VNIC, set spec.onDelete to Orphan.";
    ShapeCapacity False on OnAttached OnReady:
        "The instance has as many VNICs as its shape allows, the primary one included.",
        "Give the instance more OCPUs or another shape, or delete another of its VnicAttachments.";
    LimitReached False on OnAttached OnReady:
        "A service limit or a quota of the tenancy is reached: of VNICs, or of addresses on a VNIC.",
        "The message has the cloud's words. Ask for a higher limit, or for less: ipv4Count and ipv6Count.";
    SubnetFull False on OnAttached OnReady:
        "The subnet has no free address, or no free block.",
        "Use another subnet, free addresses, or give the subnet another CIDR block.";
    AddressesPending False on OnReady:
        "The VNIC is attached and does not have all its addresses yet, or has some too many.",
        "Wait some seconds. If it stays, the message says why.";
    AddressTaken False on OnReady:
        "An address of requestedAddresses is somebody else's, or not in the subnet.",
        "Take another one, or free it: `oci network private-ip list --subnet-id … --ip-address …`.";
    ChangePending False on OnReady:
        "The VNIC is attached, and a change of its security groups, tags or other settings is not through yet.",
        "Wait some seconds. If it stays, the message has the cloud's words.";
    InvalidSpec False on OnAttached OnReady:
        "The cloud refuses what the spec asks for.",
        "The message has the cloud's words. Correct the spec; what cannot be changed needs another VnicAttachment.";
    Forbidden False on OnAttached OnReady:
        "The cloud lets the controller see what the spec names, and does not let it do what the spec asks for.",
        "The message has the cloud's words. The controller's policies (docs/iam.md), and the rules of the compartment's security zone, where it is in one.";
    NameTaken False on OnAttached OnReady:
        "Another VnicAttachment of the same instance has the same spec.name: one that has its VNIC already, or an older one.",
        "Delete one of the two. The message names the other.";
    NodeGone False on OnAttached OnReady:
        "The instance is terminated, and the VNIC with it.",
        "Delete the VnicAttachment. Those made from a VnicProfile go by themselves.";
    InstanceForgotten False on OnAttached OnReady:
        "The cloud does not know the instance, and all that can be asked speaks for its end: no Node names it, its VNIC is not found, no list has it, although VNICs of its subnet's compartment are seen. After a day of this it is taken for terminated (NodeGone).",
        "Nothing, if the instance is gone. If it was moved, let the controller see its compartment: docs/iam.md.";
    NotAuthorizedOrNotFound Unknown on OnAttached OnReady:
        "The cloud says that the instance, the subnet or a security group is not there, or not for the controller to see. It does not tell which.",
        "The message names the call that was refused. Is the OCID right, and of this region? Then the controller's policies: that call's row in docs/iam.md.";
    NotAuthenticated Unknown on OnAttached OnReady:
        "The cloud does not accept the controller's login.",
        "The controller's log names the login. Is the clock right, is the dynamic group or workload policy there: docs/iam.md.";
    Throttled Unknown on OnAttached OnReady:
        "The cloud answers that there are too many calls, or the controller's own budget has no room for them. It is asked again, more slowly.",
        "Wait. If it stays: who else calls the API with the same tenancy, and the call rates of the controller: docs/controller.md.";
    OciUnavailable Unknown on OnAttached OnReady:
        "The cloud's API does not answer, answers with an error of its own or with what cannot be read, or leaves out what must be there. It is asked again for ever.",
        "The cloud's status page, and the way to it: routes, service gateway, proxies, port 443 (docs/iam.md).";
}

reasons! {
    /// Why a VnicProfile's condition is as it is.
    ProfileReason;
    Ready True on OnReady:
        "Every selected node that gets VNICs has all of them, ready. Where the message names a Node, that one gets none: it is no OCI instance, or an older Node has its instance.",
        "Nothing; where a Node is named, see the event on it.";
    NoNodes True on OnReady:
        "No node is selected, with allowNodeAnnotation none of those selected asks for it, or those that are selected get no VNIC (the message says why).",
        "If there should be some: `kubectl get nodes -l …`, and the annotation oke.oraclecloud.com/vnics on the Node.";
    Progressing False on OnReady:
        "Some nodes do not have all their VNICs yet.",
        "Wait. Which: `kubectl get vnica -l oke.oraclecloud.com/profile=…`.";
    Replacing False on OnReady:
        "A field that cannot be changed was changed in a template: VNICs are being replaced, one node after another.",
        "Wait.";
    Failing False on OnReady:
        "On some nodes something must be done first: a limit, a permission, a wrong field.",
        "status.failingNodes names some. `kubectl get vnica -l oke.oraclecloud.com/profile=…` has the reasons.";
    Conflict False on OnReady:
        "Another VnicProfile or VnicAttachment gives a selected node a VNIC of the same name.",
        "The message names it. Give the VNIC another name, or select other nodes.";
    InvalidSelector False on OnReady:
        "The nodeSelector cannot be understood. Nothing is made, changed or removed.",
        "The message says what is wrong. Correct it.";
    Paused Unknown on OnReady:
        "spec.paused is true: nothing is made, changed or removed.",
        "Set it to false.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_camel_case_and_says_what_to_do() {
        let attachment = AttachmentReason::ALL.iter().map(|r| (r.as_str(), r.meaning(), r.to_do(), r.on()));
        let profile = ProfileReason::ALL.iter().map(|r| (r.as_str(), r.meaning(), r.to_do(), r.on()));
        for (word, meaning, to_do, on) in attachment.chain(profile) {
            assert!(word.starts_with(char::is_uppercase) && word.chars().all(char::is_alphanumeric), "{word}");
            assert!(meaning.ends_with('.') && to_do.ends_with(['.', '?']) && !on.is_empty(), "{word}");
        }
        assert_eq!(AttachmentReason::from_word("SubnetFull"), Some(AttachmentReason::SubnetFull));
        assert_eq!(AttachmentReason::from_word("OfALaterVersion"), None);
    }

    #[test]
    fn only_a_reason_without_a_complaint_makes_ready_true() {
        let good: Vec<&str> = AttachmentReason::ALL
            .iter()
            .filter(|reason| reason.status() == ConditionStatus::True)
            .map(|reason| reason.as_str())
            .collect();
        assert_eq!(good, ["Attached", "Ready", "Configured"]);
    }
}
