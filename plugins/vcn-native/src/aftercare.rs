//! What may come late: telling the subnet where an address lives now, and forgetting a freed address's connections. The
//! agent does both, for many pods at once, when it took the verb's record; where nobody listens it is done here, because the
//! pod path needs nobody (promise P1). On their own they cost an ADD more than everything else: a walk through the whole
//! connection table, or a packet socket, which the kernel closes only after a grace period.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;

use ipam::Assigned;
use netlink::{Announcer, Socket, conntrack};

use crate::node::SYSCTL_ROOT;

/// What is left to do after a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aftercare {
    /// Gratuitous ARP or an unsolicited neighbour advertisement for each address, on its VNIC's link.
    Announce,
    /// No connection of a freed address may live on: it would be the next owner's.
    Forget,
}

impl Aftercare {
    /// Does it; answers what went wrong, which is no reason for the verb to fail.
    pub(crate) fn perform(self, assigned: &[Assigned], addresses: &[IpAddr]) -> Option<String> {
        match self {
            Self::Announce => {
                let error = announce(assigned).err()?;
                Some(format!("{error}: neighbours learn of the address only when they ask"))
            }
            Self::Forget => forget(addresses.iter().copied()),
        }
    }
}

fn announce(addresses: &[Assigned]) -> netlink::Result<()> {
    let (announcer, mut socket) = (Announcer::open()?, Socket::open()?);
    for Assigned { address, vnic_link, .. } in addresses {
        let link = socket.link(vnic_link)?;
        if let Some(mac) = link.mac {
            announcer.announce(link.index, *address, mac)?;
        }
    }
    Ok(())
}

/// Forgets every connection of these addresses, those turned towards or away from them by NAT included; answers what went
/// wrong.
pub(crate) fn forget(addresses: impl IntoIterator<Item = IpAddr>) -> Option<String> {
    let addresses: HashSet<IpAddr> = addresses.into_iter().collect();
    if addresses.is_empty() || conntrack::is_idle(Path::new(SYSCTL_ROOT)) {
        return None;
    }
    let outcome = conntrack::Socket::open().and_then(|mut socket| socket.delete_by_addresses(&addresses));
    let error = outcome.err().filter(|error| !error.is_unsupported())?;
    Some(format!("{error}: a connection to the address's last owner may reach the next one"))
}
