//! STATUS: whether an ADD could work. One file is read; nothing can hang. A full pool is healthy (the runtime would
//! declare the node not ready and evict its pods), and so is an agent that is down: the pod path needs nobody.

use cni::{Error, ErrorCode};

use crate::conf::Conf;
use crate::node::Node;

pub(crate) fn status(conf: &Conf) -> Result<(), Error> {
    match Node::open(&conf.state_dir).and_then(|node| node.pools()) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::new(
            ErrorCode::NOT_AVAILABLE,
            format!("{error}; `oke-node-agent status` on the node says what it waits for"),
        )
        .caused_by(&error)),
    }
}
