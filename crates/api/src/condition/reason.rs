//! The stable reasons of conditions, each with its meaning and the next step: one list for the controller and for
//! docs/resources.md. A published reason keeps its meaning.

use crate::condition::ConditionStatus::{self, False, True, Unknown};
use crate::condition::ConditionType::{
    self, Applied as OnApplied, Attached as OnAttached, Complete as OnComplete, Configured as OnConfigured,
    Failed as OnFailed, Progressing as OnProgressing, Ready as OnReady,
};
use crate::condition::Reason;

macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident; $($word:ident $status:ident on $($kind:ident)+: $meaning:literal, $do:literal;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $(#[doc = $meaning] $word,)*
        }

        impl $name {
            /// Every reason, in the order of docs/resources.md.
            pub const ALL: &'static [Self] = &[$(Self::$word),*];

            /// The reason of this name, if this version knows it.
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

mod task;

pub use task::TaskReason;

reasons! {
    /// Why a condition of a VnicAttachment holds or not. Ready has the reason of the condition that blocks it.
    AttachmentReason;
    Attached True on OnAttached:
        "The VNIC is on the instance.",
        "Nothing.";
    Ready True on OnReady:
        "The VNIC is attached with all its addresses, and the node's agent has set it up, or has not reported yet.",
        "Nothing.";
    NoRoutes True on OnReady:
        "As Ready, and the host uses the VNIC of purpose Host only for packets from its address: neither subnetRoute nor routes is set.",
        "Set spec.subnetRoute to true if the host should reach the VNIC's subnet through it, and spec.routes for networks behind it.";
    PrivateIpIgnored True on OnReady:
        "As Ready, but the VNIC has another address than spec.privateIp. It existed before, or a version that does not know the field created it.",
        "Delete the VnicAttachment to get a VNIC with the address; a VnicProfile creates it again.";
    Configured True on OnConfigured:
        "The node's agent has set the VNIC up.",
        "Nothing.";
    NotReported Unknown on OnConfigured OnReady:
        "The node's agent has not reported yet whether the VNIC is set up. If pods request the VNIC by name, Ready waits for the report until 30 s after the VNIC was attached. Then it depends on the VNIC alone, as for other purposes.",
        "Run `kubectl oke-node node NODE` to see whether the agent answers. It reports nothing if its version is older, or if every VNIC of the node belongs to the NativePodNetwork.";
    NotConfigured False on OnConfigured OnReady:
        "The VNIC is attached, and the node's agent has not set it up. The message names the agent's condition, such as LinkMissing.",
        "Run `kubectl oke-node explain LinkMissing` (with the condition of the message) for the next step; `kubectl oke-node node NODE` shows all problems of the node.";
    InUse False on OnAttached OnReady:
        "The VNIC is to be detached, or to lose addresses, and pods on the node use it. No new pod gets it. The controller waits until the node's agent reports that none uses it.",
        "Delete the pods that use it: `oke-node-agent attachments` in the agent's pod of the node lists them. If the node is dead, or these pods may lose the interface now: `kubectl annotate vnica NAME oke.oraclecloud.com/force-detach=true`.";
    Pending Unknown on OnAttached OnReady:
        "The controller has not handled the object yet.",
        "Wait some seconds. If it stays, check that a controller is the leader (`kubectl get lease -A`), and read its log.";
    Attaching False on OnAttached OnReady:
        "OCI is attaching the VNIC.",
        "Wait: an attach takes 5 to 60 seconds.";
    InstanceBusy False on OnAttached OnReady:
        "Another operation of the instance is in progress: an attach, a detach, a start or a stop.",
        "Wait: OCI attaches the VNICs of an instance one after another. If it stays, check the instance's state in the console.";
    PodNetworkPending False on OnAttached OnReady:
        "OKE is still building the node's pod network: the instance's NativePodNetwork exists and is not SUCCESS. OKE would use any VNIC attached now for pods, or fail. The controller requests the VNIC when OKE has finished; it checks with backoff, from 15 seconds up to RETRY_MOST_SECONDS (two minutes by default).",
        "Wait: a new node takes a minute or two. If it stays, the message has OKE's own reason: usually no free addresses in the pod subnet, a limit of VNICs, or a missing policy.";
    PodNetworkUnknown Unknown on OnAttached OnReady:
        "The API server refused to show the instance's NativePodNetwork, or its answer cannot be read. Until it can, the controller attaches and detaches no VNIC of the instance, because that could disturb OKE or running pods.",
        "Read the API server's answer in the message. For 403, repeat `kubectl apply --server-side -k` with your overlay (with the chart: `helm upgrade`), which grants the right. Otherwise check `kubectl get npn -o yaml`.";
    PodNetworkUnanswered Unknown on OnAttached OnReady:
        "The request for the instance's NativePodNetwork got no answer from the API server. Until one does, the controller attaches and detaches no VNIC of the instance. It retries with backoff up to RETRY_MOST_SECONDS (two minutes by default).",
        "Wait. If it stays, check the API server. The message has its answer, if there was one (429, 503); the controller's log has more (`instance.unreadable`).";
    UsedByPods False on OnAttached OnReady:
        "The VnicAttachment is being deleted, but the instance's NativePodNetwork names its VNIC, so pods would lose their network. The controller detaches the VNIC when the NativePodNetwork no longer names it or is gone; it checks with backoff, from 15 seconds up to RETRY_MOST_SECONDS (two minutes by default).",
        "Drain the node and terminate its instance. If the instance must stay, run `kubectl delete npn NAME` (the message has the name) and keep the node cordoned: new pods cannot start there. To leave the VNIC to OKE, set spec.onDelete to Orphan.";
    Detaching False on OnAttached OnReady:
        "The VNIC is being detached.",
        "Wait. If another program or person detached the VNIC, the controller attaches it again.";
    DetachedOutOfBand False on OnAttached OnReady:
        "Another program or person detached the VNIC. The controller attaches it again, with another OCID, MAC and other addresses.",
        "Find the caller in the audit log, operation DetachVnic. If the VNIC should stay detached, delete the VnicAttachment.";
    AttachFailed False on OnAttached OnReady:
        "OCI accepted the request to attach the VNIC, but dropped it before the VNIC was attached. The controller retries with backoff up to RETRY_MOST_SECONDS (two minutes by default). Other VNICs of the instance do not wait.",
        "Check the instance's work requests and audit log in the console, operation AttachVnic. If they show nothing, reboot or replace the instance.";
    DetachFailed False on OnAttached OnReady:
        "The VnicAttachment is being deleted. OCI accepted the request to detach the VNIC, but the VNIC is still attached. The controller retries with backoff up to RETRY_MOST_SECONDS (two minutes by default).",
        "Check the instance's work requests and audit log in the console, operation DetachVnic. To delete the VnicAttachment without its VNIC, set spec.onDelete to Orphan.";
    ShapeCapacity False on OnAttached OnReady:
        "The instance has as many VNICs as its shape allows, including the primary one.",
        "Give the instance more OCPUs or another shape, or delete another of its VnicAttachments.";
    LimitReached False on OnAttached OnReady:
        "A service limit or quota of the tenancy is reached, for VNICs or for addresses on a VNIC.",
        "Request a higher limit, or lower ipv4Count and ipv6Count. The message has OCI's answer.";
    SubnetFull False on OnAttached OnReady:
        "The subnet has no free address or block.",
        "Use another subnet, free addresses, or give the subnet another CIDR block.";
    AddressesPending False on OnReady:
        "The VNIC is attached, but some addresses are still missing or superfluous.",
        "Wait some seconds. If it stays, the message has the cause.";
    AddressTaken False on OnAttached OnReady:
        "privateIp, or an address of requestedAddresses, is in use elsewhere or not in the subnet.",
        "Request another address, or free it: `oci network private-ip list --subnet-id … --ip-address …`.";
    ChangePending False on OnReady:
        "The VNIC is attached, but a change of its security groups, tags or other settings is not complete.",
        "Wait some seconds. If it stays, the message has OCI's answer.";
    InvalidSpec False on OnAttached OnReady:
        "OCI refused the request as invalid.",
        "Correct the spec: the message has OCI's answer. To change an immutable field, create another VnicAttachment.";
    Forbidden False on OnAttached OnReady:
        "OCI lets the controller see the resources of the spec, but not change them.",
        "Check the controller's policies (docs/iam.md), and the rules of the compartment's security zone if it has one. The message has OCI's answer.";
    NameTaken False on OnAttached OnReady:
        "Another VnicAttachment of the instance has the same spec.name, and has its VNIC already or is older.",
        "Delete one of the two. The message names the other one.";
    NodeGone False on OnAttached OnReady:
        "The instance is terminated; its VNIC is gone.",
        "Delete the VnicAttachment. The controller deletes those of a VnicProfile itself.";
    NotAuthorizedOrNotFound Unknown on OnAttached OnReady:
        "The instance, the subnet or a security group does not exist, or the controller may not see it. OCI does not say which.",
        "Check the OCID and its region, then the controller's policies: docs/iam.md has a row for the refused call that the message names. To delete the VnicAttachment and leave the VNIC: `kubectl delete vnica NAME --wait=false`, then `kubectl patch vnica NAME --type=merge -p '{\"metadata\":{\"finalizers\":null}}'`.";
    NotAuthenticated Unknown on OnAttached OnReady:
        "OCI refused the controller's login.",
        "Check the clock, and the dynamic group or workload policy (docs/iam.md). The controller's log names the login.";
    Throttled Unknown on OnAttached OnReady:
        "OCI answered that there are too many requests, or the controller's own request budget is used up. The controller retries more slowly.",
        "Wait. If it stays, find other callers of the tenancy, and check the controller's request rate (docs/controller.md).";
    OciUnavailable Unknown on OnAttached OnReady:
        "The OCI API does not answer, reports an internal error, or its answer is incomplete or cannot be read. The controller retries until it succeeds.",
        "Check OCI's status page and the route to it: service gateway, proxies, port 443 (docs/iam.md).";
}

reasons! {
    /// Why a condition of a VnicProfile holds or not.
    ProfileReason;
    Ready True on OnReady:
        "All VNICs of all selected nodes are ready. A Node that the message names gets no VNIC. It is not an OCI instance, an older Node has its instance, or its node pool is not the pool of its annotation.",
        "Nothing. If the message names a Node, read its Events.";
    NoNodes True on OnReady:
        "No node is selected; or, with allowNodeAnnotation, no selected node requests the profile; or the selected nodes get no VNIC (the message has the cause).",
        "Check `kubectl get nodes -l …`, and on the Node the annotations oci.oraclecloud.com/node-pool-id (for nodePools) and oke.oraclecloud.com/vnics, if you expect nodes.";
    Progressing False on OnReady:
        "Some VNICs of selected nodes are not ready yet.",
        "Wait. `kubectl get vnica -l oke.oraclecloud.com/profile=…` lists them.";
    Replacing False on OnReady:
        "An immutable field of a template changed: the controller replaces the VNICs, one node after another.",
        "Wait.";
    Failing False on OnReady:
        "Some nodes cannot get their VNICs because of a limit, a permission or a wrong field.",
        "Run `kubectl get vnica -l oke.oraclecloud.com/profile=…` for the reasons. status.failingNodes names some of the nodes.";
    Conflict False on OnReady:
        "Another VnicProfile or VnicAttachment requests a VNIC of the same name for a selected node.",
        "Rename the VNIC, or select other nodes. The message names the other object.";
    InvalidSpec False on OnReady:
        "An attachment has privateIp, and the profile selects more than one node. The controller creates, changes and removes nothing.",
        "Remove privateIp, or select one node: one VnicProfile or VnicAttachment per fixed address.";
    InvalidSelector False on OnReady:
        "The nodeSelector is invalid. The controller creates, changes and removes nothing.",
        "Correct the selector; the message shows the error.";
    Deleting False on OnReady:
        "The VnicProfile is being deleted. It stays until its VnicAttachments are gone.",
        "Wait. If the message names a VnicAttachment, run `kubectl oke-node explain` with the reason after its name, for example `InUse`.";
    Paused Unknown on OnReady:
        "spec.paused is true: the controller creates, changes and removes nothing.",
        "Set it to false.";
}

reasons! {
    /// Why a condition of a NodePolicy holds or not, and why a node of it does not have a setting.
    PolicyReason;
    Done False on OnProgressing:
        "The rollout is complete: no node needs a change.",
        "Nothing.";
    Canary True on OnProgressing:
        "The canaries have the settings or are getting them, and are watched for rollout.canary.soakSeconds. No other node changes meanwhile.",
        "Wait. `kubectl oke-node policy NAME` names the canaries and what they wait for.";
    Rolling True on OnProgressing:
        "Nodes get the settings; at most rollout.maxUnavailable change, fail or are NotReady at the same time.",
        "Wait. If the rollout does not continue, run `kubectl oke-node policy NAME`: it names the nodes that use up maxUnavailable.";
    RollingBack True on OnProgressing:
        "Too many nodes failed: nodes with the rejected revision get the last settings that worked, or their earlier values if there are none.",
        "Read status.failing, correct the settings, and apply the policy again. The rejected revision is not retried.";
    Undoing True on OnProgressing:
        "The policy is being deleted, or no longer selects some nodes. These nodes get their earlier values back, in batches.",
        "Wait. If nodes remain, run `kubectl oke-node policy NAME`. To leave the values as they are, set spec.onDelete to Keep.";
    Waiting Unknown on OnProgressing:
        "A new leader sends no settings until it knows the state of each selected node, for up to five minutes. Any leader waits while so many agents are silent that the leader itself is probably cut off.",
        "Wait. If nothing changes after five minutes, check the agents: `kubectl oke-node status`.";
    Unanswered True on OnProgressing:
        "The remaining nodes do not answer or are NotReady, or such nodes use up maxUnavailable. The rollout continues when they recover.",
        "Run `kubectl oke-node policy NAME`: it names the nodes. Repair or delete them, or raise rollout.maxUnavailable.";
    Rejected False on OnProgressing:
        "Too many nodes failed with this revision. It is not retried until mode, priority or settings change. With onFailure Rollback, nodes have the last settings that worked; with Hold, they keep this revision.",
        "Run `kubectl oke-node explain` with the reason in status.failing. Then correct the settings, and apply the policy again.";
    Paused False on OnProgressing:
        "spec.paused is true, and not all nodes have the revision. No further node gets it; a failure still rolls back.",
        "Set spec.paused to false.";
    Stopped Unknown on OnProgressing:
        "The cluster's stop switch is on: no node gets any change, not even a rollback.",
        "Run `kubectl oke-node stop --off` when the reason is gone.";
    InvalidSelector False on OnProgressing:
        "The nodeSelector is invalid: no node changes.",
        "Correct the selector; the message shows the error.";
    TooMany False on OnProgressing:
        "The cluster has more than 50 NodePolicies, and this one is not among the 50 oldest: no node gets it.",
        "Delete some policies, or merge them.";
    Applied True on OnApplied:
        "All selected nodes that answer have the settings.",
        "Nothing.";
    NoNodes True on OnApplied:
        "The policy selects no node.",
        "Check `kubectl get nodes -l …` if you expect nodes.";
    Pending False on OnApplied:
        "Some selected nodes do not have the revision yet.",
        "Wait; the condition Progressing shows the progress.";
    Drifted False on OnApplied:
        "Values on nodes differ from the policy. With mode Report they stay; with mode Apply the agent usually sets them within a minute.",
        "Run `kubectl oke-node policy NAME`: it shows each value. With mode Report, set spec.mode to Apply to change them.";
    Reverted False on OnApplied:
        "Another program reverts a value: the agent set it three times in ten minutes, and retries after an hour.",
        "Find the program; the message names the likely one. Remove the key from its configuration or from the policy.";
    NotGranted False on OnApplied:
        "A setting needs a permit of the cluster's owner: its folder is not mounted, or files of its kind are not permitted.",
        "Set the chart's value (or the add-on's key) to true: `tunables` for kernel settings, `hostFiles` or `hostCode` for files; the message names it. Keys outside the folders of `tunables` need your own mount: docs/node-policies.md.";
    Refused False on OnApplied:
        "A setting belongs to the agent, the kubelet or a namespace of a pod, or is not in the table of keys. Other settings of the policy still apply.",
        "Read the message: it shows the reason and the alternative. TUNABLE_KEYS of the agent adds keys to the table.";
    Unsupported False on OnApplied:
        "The node's kernel or device lacks a setting, a flag of the kubelet outranks a reservation, or the node's agent is from a release without NodePolicies or without files. This is not a failure.",
        "Read the message: it names the flag. Update the agent, remove the flag from the node pool, or select other nodes.";
    Failed False on OnApplied:
        "The kernel or the device refused a value, or a probe failed after a change of a link and the agent restored the link.",
        "Read the message in `kubectl oke-node node NODE`, and correct the value.";
    RolledBack False on OnApplied:
        "Files were changed, and a unit did not stay active or the node did not become Ready within 100 s. The earlier files are back, and the unit was restarted with them.",
        "Read the message and the unit's journal on the node: `kubectl oke-node capture NODE`. Correct the file; the same change is not retried.";
    Unconfirmed False on OnApplied:
        "The controller did not reach the agent within 120 s after a change, so the agent restored the earlier value. After three attempts the agent waits for a change of the policy.",
        "Check the controller and its network path to the node, then change the policy.";
    Conflict False on OnApplied:
        "An older policy of the same priority sets another value on some nodes.",
        "Change one of the values or priorities: the message names the key and the other policy.";
    NoLink False on OnApplied:
        "A node has no link that an entry of settings.links selects.",
        "Check `ip link` on the node, or select other nodes.";
    NewProblem False on OnApplied:
        "A node has a critical problem that it did not have when it got the settings.",
        "Run `kubectl oke-node node NODE`; the item names the problem.";
    NodeNotReady False on OnApplied:
        "A node was Ready when it got the settings, and is now NotReady.",
        "Run `kubectl describe node NODE`.";
    CanaryLost False on OnApplied:
        "A canary was deleted, replaced or deselected before its soak ended. It is unknown whether the revision harmed the node.",
        "Check why the node left. If the revision is not the cause, change the policy to start again: for example its priority.";
    AgentSilent False on OnApplied:
        "A node's agent stopped answering for five minutes after it got the settings, while other agents answer.",
        "Run `kubectl oke-node node NODE`. If a link setting cut the node off, the agent restores the link without help.";
}

impl AttachmentReason {
    /// The reason that a plan uses: the reasons of a ready VNIC differ only in their information for its owner.
    #[must_use]
    pub const fn planned(self) -> Self {
        match self {
            Self::NoRoutes | Self::PrivateIpIgnored => Self::Ready,
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_camel_case_with_a_next_step() {
        let attachment = AttachmentReason::ALL.iter().map(|r| (r.as_str(), r.meaning(), r.to_do(), r.on()));
        let profile = ProfileReason::ALL.iter().map(|r| (r.as_str(), r.meaning(), r.to_do(), r.on()));
        let policy = PolicyReason::ALL.iter().map(|r| (r.as_str(), r.meaning(), r.to_do(), r.on()));
        let task = TaskReason::ALL.iter().map(|r| (r.as_str(), r.meaning(), r.to_do(), r.on()));
        for (word, meaning, to_do, on) in attachment.chain(profile).chain(policy).chain(task) {
            assert!(word.starts_with(char::is_uppercase) && word.chars().all(char::is_alphanumeric), "{word}");
            assert!(meaning.ends_with('.') && to_do.ends_with(['.', '?']) && !on.is_empty(), "{word}");
        }
        assert_eq!(AttachmentReason::from_word("SubnetFull"), Some(AttachmentReason::SubnetFull));
        assert_eq!(AttachmentReason::from_word("OfALaterVersion"), None);
    }

    #[test]
    fn condition_is_true_only_while_the_vnic_is_usable() {
        let good: Vec<&str> = AttachmentReason::ALL
            .iter()
            .filter(|reason| reason.status() == ConditionStatus::True)
            .map(|reason| reason.as_str())
            .collect();
        assert_eq!(good, ["Attached", "Ready", "NoRoutes", "PrivateIpIgnored", "Configured"]);
    }
}
