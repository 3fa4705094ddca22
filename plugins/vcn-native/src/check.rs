//! CHECK: the plan from what is observed to what is desired must be empty; a plan that is not is the answer.

use std::path::Path;

use cni::{CheckRequest, Error};
use datapath::{Places, plan, pod};
use netlink::Netns;

use crate::conf::Conf;
use crate::failure::{self, code};
use crate::node::{self, Node, SYSCTL_ROOT};
use crate::report::Report;

pub(crate) fn check(request: &CheckRequest<Conf>, report: &mut Report) -> Result<(), Error> {
    let netns = Netns::open(&request.netns).map_err(|error| failure::of_netns(&request.netns, &error))?;
    let node = Node::open(&request.conf.state_dir).map_err(|error| failure::of_ipam(&error))?;
    let held = node.store.read().map_err(|error| failure::of_ipam(&error))?;
    let allocation = held.find(&request.key).ok_or_else(|| {
        Error::new(code::NOT_ALLOCATED, format!("{} holds no address; delete and add the pod", request.key))
    })?;
    report.addresses(&allocation.addresses);
    let pools = node.pools().map_err(|error| failure::of_ipam(&error))?;
    report.mark("record");
    let mut places = Places::host(Path::new(SYSCTL_ROOT))
        .map_err(|error| failure::of_host(&error))?
        .with_pod(netns)
        .map_err(|error| failure::of_host(&error))?;
    let observed = node::observe(&request.key, Some(allocation), Some(&pools), &mut places)?;
    report.mark("observe");
    let missing = plan(&pod::desired(&node::network(allocation, Some(&pools))), &observed);
    if missing.is_empty() {
        return Ok(());
    }
    let steps: Vec<String> = missing.iter().map(ToString::to_string).collect();
    let msg = format!("{} is not as ADD made it: {} step(s) would mend it", request.key, steps.len());
    Err(Error::new(code::CHECK_DIFFERS, msg).with_details(steps.join("; ")))
}
