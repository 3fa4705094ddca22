//! What a plugin must do, verb by verb. What the specification lets be missing is an `Option` here, nothing else is.

use std::collections::BTreeSet;

use crate::{Args, AttachmentKey, Config, ContainerNetns, Error, PrevResult};

/// ADD: attach the container to the network.
#[derive(Clone, Debug)]
pub struct AddRequest<C> {
    /// Whose attachment; `key.ifname` is the interface to make.
    pub key: AttachmentKey,
    /// The network namespace of the container.
    pub netns: ContainerNetns,
    /// CNI_ARGS: which pod it is.
    pub args: Args,
    /// The protocol's part of the configuration.
    pub config: Config,
    /// The plugin's own part.
    pub conf: C,
}

/// Is the attachment still as the chain left it?
#[derive(Clone, Debug)]
pub struct CheckRequest<C> {
    /// The attachment to check.
    pub key: AttachmentKey,
    /// The network namespace of the container.
    pub netns: ContainerNetns,
    /// What the whole chain answered to ADD, later plugins' changes included.
    pub prev_result: PrevResult,
    /// CNI_ARGS: which pod it is.
    pub args: Args,
    /// The protocol's part of the configuration.
    pub config: Config,
    /// The plugin's own part.
    pub conf: C,
}

/// Detach the container. Nearly everything may be gone already; the answer is success then. The netns is not passed: it may be
/// gone, belong to another container by now, or be the host's by mistake.
#[derive(Clone, Debug)]
pub struct DelRequest<C> {
    /// The attachment to remove.
    pub key: AttachmentKey,
    /// CNI_ARGS: the pod; empty when they could not be read.
    pub args: Args,
    /// The protocol's part of the configuration.
    pub config: Config,
    /// The plugin's own part, or why it cannot be read: the configuration may have changed since ADD, and the
    /// attachment must be removable all the same.
    pub conf: Result<C, Error>,
}

/// Could an ADD succeed now? Answer at once: runtimes hold locks while they call, and a "no" makes the node not ready.
#[derive(Clone, Debug)]
pub struct StatusRequest<C> {
    /// The protocol's part of the configuration.
    pub config: Config,
    /// The plugin's own part.
    pub conf: C,
}

/// Free what belongs to no valid attachment of this network.
#[derive(Clone, Debug)]
pub struct GcRequest<C> {
    /// The attachments to keep; all of one network, `config.name`. Those of other networks do not count. `None` if the caller
    /// named none: keep all.
    pub valid: Option<BTreeSet<AttachmentKey>>,
    /// The protocol's part of the configuration.
    pub config: Config,
    /// The plugin's own part, or why it cannot be read.
    pub conf: Result<C, Error>,
}
