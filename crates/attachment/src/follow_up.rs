//! Work that may come after the answer: announcing an address to the subnet, and deleting the conntrack entries of a freed
//! one. The agent does both, for many pods at once, when it took the verb's record. Without an agent the plugin does it,
//! because the pod path needs no other process (promise P1). It costs more than all the rest of an ADD: a walk through the
//! whole conntrack table, or a packet socket, which the kernel closes only after a grace period.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use ipam::AssignedAddress;
use netlink::{Announcer, Socket, conntrack};

use crate::state_dir::SYSCTL_ROOT;

/// How long a verb deletes conntrack entries: enough for hundreds of thousands. One pod can have made millions, and the
/// runtime waits. The rest is not recorded as forgotten, so the agent or the next ADD of the address continues.
const TIME_LIMIT: Duration = Duration::from_secs(3);

/// The work that follows a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowUp {
    /// Gratuitous ARP or an unsolicited neighbour advertisement for each address, on its VNIC's link.
    Announce,
    /// Delete the connections of freed addresses, or they would reach the next owner.
    Forget,
}

impl FollowUp {
    /// Does the work and returns what went wrong. The verb does not fail for it.
    pub fn perform(self, assigned: &[AssignedAddress], addresses: &[IpAddr]) -> Option<String> {
        match self {
            Self::Announce => {
                let error = announce(assigned).err()?;
                Some(format!("{error}: other hosts of the subnet learn the address only by ARP or NDP requests"))
            }
            Self::Forget => forget(addresses.iter().copied()).problem(),
        }
    }
}

fn announce(addresses: &[AssignedAddress]) -> netlink::Result<()> {
    if addresses.is_empty() {
        return Ok(());
    }
    let (announcer, mut socket) = (Announcer::open()?, Socket::open()?);
    for AssignedAddress { address, vnic_link, .. } in addresses {
        let link = socket.link(vnic_link)?;
        if let Some(mac) = link.mac {
            announcer.announce(link.index, *address, mac)?;
        }
    }
    Ok(())
}

/// How many connections of some addresses were deleted. The rest reaches the next owner of an address.
#[must_use]
#[derive(Debug)]
pub(crate) enum DeletionOutcome {
    All,
    /// Some of them: the time limit was reached.
    Incomplete,
    Failed(netlink::Error),
}

impl DeletionOutcome {
    /// What to report of it.
    pub(crate) fn problem(&self) -> Option<String> {
        let why = match self {
            Self::All => return None,
            Self::Incomplete => {
                format!("there are more connections than can be forgotten in {} s", TIME_LIMIT.as_secs())
            }
            Self::Failed(error) => error.to_string(),
        };
        Some(format!("{why}: one to the address's last owner may reach the next one"))
    }
}

/// Deletes the connections of these addresses, including those that NAT translates to or from them.
pub(crate) fn forget(addresses: impl IntoIterator<Item = IpAddr>) -> DeletionOutcome {
    forget_within(TIME_LIMIT, addresses)
}

fn forget_within(limit: Duration, addresses: impl IntoIterator<Item = IpAddr>) -> DeletionOutcome {
    let addresses: HashSet<IpAddr> = addresses.into_iter().collect();
    if addresses.is_empty() || conntrack::is_idle(Path::new(SYSCTL_ROOT)) {
        return DeletionOutcome::All;
    }
    let start = Instant::now();
    let delete =
        |socket: conntrack::ConntrackSocket| socket.delete_by_addresses(&addresses, || start.elapsed() < limit);
    match conntrack::ConntrackSocket::open().and_then(delete) {
        Ok(deleted) if !deleted.all => DeletionOutcome::Incomplete,
        Err(error) if !error.is_unsupported() => DeletionOutcome::Failed(error),
        Ok(_) | Err(_) => DeletionOutcome::All,
    }
}
