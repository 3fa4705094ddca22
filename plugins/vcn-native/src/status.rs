//! STATUS: whether an ADD could work. One file is read; nothing can hang. A full pool is healthy: otherwise the runtime
//! would declare the node not ready and evict its pods. An agent that is down is healthy, too: the pod path needs no
//! agent. A node of which no VNIC serves pods is not: no ADD can work there, however many pods end.

use std::time::Duration;

use attachment::Node;
use cni::{Error, ErrorCode};

/// How long there must have been no VNIC for pods. A link that flaps takes its VNIC out of the pools for a moment. A node
/// that is not ready loses the traffic of all its pods, also of those that need no VNIC. Where there has been none in this
/// boot, there is nothing to wait for.
const GRACE: Duration = Duration::from_secs(30);

pub(crate) fn status() -> Result<(), Error> {
    let not_available = |what: String| {
        Error::new(
            ErrorCode::NOT_AVAILABLE,
            format!("{what}; `oke-node-agent why-not-ready` in the agent's pod of this node says what it waits for"),
        )
    };
    let opened = Node::open().and_then(|node| Ok((node.pools()?, node)));
    let (pools, node) = match opened {
        Ok(opened) => opened,
        Err(error) => return Err(not_available(error.to_string()).caused_by(&error)),
    };
    if pools.offered().is_empty() && pools.empty_for(node.now).is_none_or(|age| age >= GRACE) {
        // One line: the kubelet shows it in the node's condition.
        let reason = pools.reason.map(|reason| format!(": {}", reason.replace('\n', " "))).unwrap_or_default();
        return Err(not_available(format!("no VNIC has addresses for pods{reason}")));
    }
    Ok(())
}
