//! The reasons of a NodeTask: of the task, and of a node that failed or was skipped.

use super::{ConditionStatus, ConditionType, OnComplete, OnFailed, Reason, True, Unknown};

reasons! {
    /// Why a NodeTask is in its state, or why a node of it failed. Complete and Failed exist on a finished task only.
    TaskReason;
    Succeeded True on OnComplete:
        "The action succeeded on all nodes, apart from skipped ones and those that maxFailures allows.",
        "Nothing. If nodes were skipped, their Events have the reason.";
    Queued Unknown on OnComplete:
        "No node starts yet: other tasks run on the nodes, as many tasks run as may at once, or a new leader has not heard of the nodes.",
        "Wait. `kubectl get nodetasks` shows the tasks that run.";
    Working Unknown on OnComplete:
        "The action runs on the nodes of status.running; the message names what one of them waits for.",
        "Wait. `kubectl oke-node task NAME` shows the progress.";
    StopSwitch Unknown on OnComplete:
        "The cluster's stop switch is on: no node starts. What has had an effect already is still watched.",
        "Run `kubectl oke-node stop --off` when the reason is gone.";
    NotEnabled True on OnFailed:
        "Tasks, or reboots, are not enabled in this cluster. The task does nothing, also if they are enabled later.",
        "Set the chart's value or the add-on's key `tasks` to true, and `reboot` for reboots. Then create the task again.";
    InvalidSelector True on OnFailed:
        "The nodeSelector is invalid.",
        "Correct the selector: the message has the error. Create the task again.";
    NoNodes True on OnFailed:
        "No Node has this name, or the selector matches none.",
        "Check `kubectl get nodes`, with -l and the labels. Create the task again.";
    Unreadable True on OnFailed:
        "The controller cannot read the status: another program or a later version wrote it. A node may have had the action already, so none is repeated.",
        "Find the writer in the object's managedFields. Check the nodes, then create the task again.";
    TooManyFailures True on OnFailed:
        "More nodes failed than spec.maxFailures allows: no further node started.",
        "Read status.failures: run `kubectl oke-node explain` with its reason. Create a task for the nodes that are left.";
    Outdated True on OnFailed:
        "The task did not start within a day of its creation: what it was for may have changed meanwhile.",
        "Read the message for what it waited for, then create the task again.";
    NotStarted True on OnFailed:
        "The Pod of the operation did not start on the node within 60 seconds: its kubelet or runtime does not work, or the image is not there.",
        "Run `kubectl describe node NODE`. If the kubelet or the runtime is dead, restart it on the node's console, or reboot the instance.";
    PodRefused True on OnFailed:
        "The API server refused the Pod of the operation: a policy of the cluster, or the namespace's quota.",
        "Read the message. The namespace oke-node-tasks needs the level privileged, and policies of other programs an exception for it.";
    OperationFailed True on OnFailed:
        "The operation ended with an error on the node.",
        "Read the message: it has the step and its error.";
    ResultInvalid True on OnFailed:
        "The Pod of the operation ended without a result that the controller accepts. Whether it had an effect is not known.",
        "Check the node: `kubectl oke-node node NODE`. Then create the task again.";
    UnitNotFound True on OnFailed:
        "The node has no such unit, or it is masked.",
        "Name the unit of the node's runtime: `kubectl get node NODE -o wide` shows the runtime.";
    UnitNotActive True on OnFailed:
        "After the restart the unit was not active for 10 seconds.",
        "Read its logs on the node: `journalctl -u UNIT`.";
    NotGrown True on OnFailed:
        "The root disk was not grown: the boot volume has no free space behind it, or the Node's ephemeral-storage did not change.",
        "Read the message. `kubectl oke-node node NODE` shows the signal root_disk_unused.";
    DeadlineExceeded True on OnFailed:
        "The node was not done within spec.deadlineMinutes. What was started on it may still take effect.",
        "Read the message for the last step. Check the node, then create the task again with more time.";
    DrainBlocked True on OnFailed:
        "Pods could not be evicted in time: the message names one, and the PodDisruptionBudget that forbids it. The node was uncordoned and not rebooted.",
        "Add a replica or repair the pods of the budget, then create the task again.";
    ResetRefused True on OnFailed:
        "OCI refused the reset. The node was uncordoned and not rebooted.",
        "Check the permission INSTANCE_POWER_ACTIONS (docs/iam.md). The message has OCI's answer.";
    NotProven True on OnFailed:
        "After the reset the node was not proven healthy in time. It stays cordoned, and there is no second reset.",
        "Read the message for what is missing. Look at the instance's console; uncordon the node when it is healthy.";
    Replaced True on OnFailed:
        "The Node has another uid or instance than when the task was created: it was replaced meanwhile.",
        "Nothing, if the new node is healthy.";
    Cordoned True on OnFailed:
        "The node is cordoned by another program or person, so it was skipped.",
        "Leave it to the program or person that cordoned it, or uncordon it and create the task again.";
    Deleting True on OnFailed:
        "The autoscaler, Karpenter or OKE is about to delete the node, so it was skipped.",
        "Nothing.";
    OtherOperation True on OnFailed:
        "OKE's own node operation or repair works on the node, so it was skipped.",
        "Wait until it is over: `kubectl describe node NODE`.";
    NodeGone True on OnFailed:
        "The Node was deleted before the action or during it.",
        "Nothing.";
    NoInstance True on OnFailed:
        "The Node's providerID names no OCI instance, so there is nothing to reboot.",
        "Check `kubectl get node NODE -o jsonpath={.spec.providerID}`: OCI's cloud controller manager writes it.";
    NotMatched True on OnFailed:
        "The node matches the selector only since after the task started, so it was skipped.",
        "Apply another task for it.";
    NotReady True on OnFailed:
        "The node was not Ready, so it was skipped.",
        "Check the node: `kubectl oke-node node NODE`. Then create a task for it.";
    FleetNotReady Unknown on OnComplete:
        "More than 10 % of the other nodes are not ready: no node starts.",
        "Wait, or repair the nodes: `kubectl oke-node status`.";
    Unsupported True on OnFailed:
        "The node's agent is of a release without this action.",
        "Update the agent, or choose another node.";
    AgentSilent True on OnFailed:
        "The node's agent does not answer.",
        "Run `kubectl oke-node node NODE`.";
    DiskFull True on OnFailed:
        "The node has less than 10 % or 2 GiB free, or two captures already.",
        "Delete the NodeTasks of its captures, or free space on the node.";
    CaptureLost True on OnFailed:
        "The capture ended early: the agent restarted, the node rebooted, or the disk became full. Nothing of it is left.",
        "Apply the task again under another name.";
    CaptureFailed True on OnFailed:
        "The agent refused the capture or a part of it.",
        "Read the message: it has the part and its error.";
}
