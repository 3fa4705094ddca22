//! The reasons of a NodeTask: of the task, and of a node that failed or was skipped.

use super::{ConditionStatus, ConditionType, OnComplete, OnFailed, Reason, True, Unknown};

reasons! {
    /// Why a NodeTask is in its state, or why one of its nodes failed. Complete and Failed exist on a finished task only.
    TaskReason;
    Succeeded True on OnComplete:
        "The action succeeded on all nodes, apart from skipped ones and those that maxFailures allows.",
        "Nothing. If nodes were skipped, their Events have the reason.";
    Queued Unknown on OnComplete:
        "No node starts yet. Another task runs on the nodes, the maximum number of tasks is running, or a new leader has no reports of the nodes yet.",
        "Wait. `kubectl get nodetasks` shows the tasks that run.";
    Working Unknown on OnComplete:
        "The action runs on the nodes in status.running. The message says what one of them waits for.",
        "Wait. `kubectl oke-node task NAME` shows the progress.";
    StopSwitch Unknown on OnComplete:
        "The cluster's stop switch is on: no further node starts. The controller still watches actions that had an effect already.",
        "Run `kubectl oke-node stop --off` when the reason for the stop is gone.";
    NotEnabled True on OnFailed:
        "Tasks or reboots are not enabled in this cluster, or captures on the node. This task does nothing, even if they are enabled later.",
        "Set the chart's value or the add-on's key `tasks` to true; for reboots, also `reboot`; for payload, `captures` to `payload`. Then create the task again.";
    InvalidSelector True on OnFailed:
        "The nodeSelector is invalid.",
        "Read the error in the message. Create the task again with a valid selector.";
    NoNodes True on OnFailed:
        "No Node has this name, or the selector matches no Node.",
        "Check the name or the labels with `kubectl get nodes --show-labels`, then create the task again.";
    Unreadable True on OnFailed:
        "The controller cannot read the status: another program or a later version wrote it. Some nodes may have had the action already, so it starts on no further node.",
        "Find the writer in the object's managedFields. Check the nodes, then create a task for those without the action.";
    TooManyFailures True on OnFailed:
        "More nodes failed than spec.maxFailures allows, so no further node starts.",
        "Run `kubectl oke-node explain REASON` with each reason in status.failures. Then create a task for the remaining nodes.";
    Outdated True on OnFailed:
        "The task did not start within a day of its creation, so it may no longer be needed.",
        "Read in the message what it waited for. If the task is still needed, create it again.";
    NotStarted True on OnFailed:
        "The operation's Pod did not start on the node within 60 seconds. The kubelet or runtime does not work, or the image is missing.",
        "Run `kubectl describe node NODE`. If the kubelet or runtime is down, restart it on the node's console, or reboot the instance.";
    PodRefused True on OnFailed:
        "The API server refused the operation's Pod, because of an admission policy or the namespace's quota.",
        "Read the message. The namespace oke-node-tasks needs the Pod Security level privileged, and an exception in other admission policies.";
    OperationFailed True on OnFailed:
        "The operation ended with an error on the node.",
        "Read the step and its error in the message.";
    ResultInvalid True on OnFailed:
        "The operation's Pod ended without a valid result. It may have had an effect.",
        "Check the node: `kubectl oke-node node NODE`. Then create the task again.";
    UnitNotFound True on OnFailed:
        "The node does not have the unit, or the unit is masked.",
        "Use a unit that the node has. `kubectl get node NODE -o wide` shows its container runtime.";
    UnitNotActive True on OnFailed:
        "After its restart the unit did not stay active for 10 seconds.",
        "Read the unit's logs on the node: `journalctl -u UNIT`.";
    NotGrown True on OnFailed:
        "The root disk was not grown. The boot volume has no free space behind it, or the Node's ephemeral-storage did not change.",
        "Read the message. `kubectl oke-node node NODE` shows the signal root_disk_unused.";
    DeadlineExceeded True on OnFailed:
        "The action did not finish on the node within spec.deadlineMinutes. Steps that were started may still take effect.",
        "Read the last step in the message. Check the node, then create the task again with a longer deadline.";
    DrainBlocked True on OnFailed:
        "Some pods could not be evicted. The node was uncordoned and not rebooted.",
        "Read in the message which pod is left and what blocks it. Add a replica, repair the pods, or permit their eviction. Then create the task again.";
    ResetRefused True on OnFailed:
        "OCI refused the reset. The node was uncordoned and not rebooted.",
        "Read OCI's answer in the message. Check the permission INSTANCE_POWER_ACTIONS (docs/iam.md).";
    NotProven True on OnFailed:
        "After its reset the node did not become healthy in time. It stays cordoned, and the task does not reset it again.",
        "Read in the message what is missing. Check the instance's console, and uncordon the node when it is healthy.";
    Replaced True on OnFailed:
        "The Node was replaced after the task was created: its uid or instance differs.",
        "Nothing, if the new node is healthy.";
    Cordoned True on OnFailed:
        "Another program or person cordoned the node, so the task skipped it.",
        "Find out who cordoned the node. If it is no longer needed, uncordon the node and create the task again.";
    Deleting True on OnFailed:
        "Cluster Autoscaler, Karpenter or OKE is about to delete the node, so the task skipped it.",
        "Nothing.";
    OtherOperation True on OnFailed:
        "OKE's own operation or repair runs on the node, so the task skipped it.",
        "Wait until `kubectl describe node NODE` no longer shows it, then create the task again.";
    NodeGone True on OnFailed:
        "The Node was deleted before or during the action.",
        "Nothing.";
    NoInstance True on OnFailed:
        "The Node's providerID does not name an OCI instance, or another Node or the agent contradicts it.",
        "Check `kubectl get node NODE -o jsonpath={.spec.providerID}`. OCI's cloud controller manager writes it.";
    NotMatched True on OnFailed:
        "The node matched the selector only after the task had started, so the task skipped it.",
        "Apply another task for the node.";
    NotReady True on OnFailed:
        "The node was not Ready, so the task skipped it.",
        "Check the node with `kubectl oke-node node NODE`. When it is Ready, create a task for it.";
    FleetNotReady Unknown on OnComplete:
        "More than 10 % of the other nodes are not ready, so no further node starts.",
        "Wait, or repair the nodes: `kubectl oke-node status`.";
    Unsupported True on OnFailed:
        "The node's agent is from a release without this action.",
        "Update the agent, or choose another node.";
    AgentSilent True on OnFailed:
        "The node has no agent, or its agent does not answer.",
        "Run `kubectl oke-node node NODE`.";
    DiskFull True on OnFailed:
        "The node's disk has less than 10 % or 2 GiB free, or the node has two captures already.",
        "Delete the NodeTasks of its captures, or free space on the node.";
    CaptureLost True on OnFailed:
        "The capture ended early: the agent restarted, the node rebooted, or the disk became full. The agent removed its files.",
        "Apply the task again under another name.";
    CaptureFailed True on OnFailed:
        "The agent refused the capture or one of its parts.",
        "Read the part and its error in the message.";
}
