//! What may come late: telling the subnet where an address lives now, and forgetting a freed address's connections. The
//! agent does both, for many pods at once, when it took the verb's record; where nobody listens it is done here, because the
//! pod path needs nobody (promise P1). On their own they cost an ADD more than everything else: a walk through the whole
//! connection table, or a packet socket, which the kernel closes only after a grace period.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use ipam::Assigned;
use netlink::{Announcer, Socket, conntrack};

use crate::node::SYSCTL_ROOT;

/// How long a verb forgets connections: hundreds of thousands. One pod can have made millions, and a runtime waits for the verb.
/// What is left is not noted as forgotten, so the agent goes on with it, or whoever is to have the address.
const PATIENCE: Duration = Duration::from_secs(3);

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
            Self::Forget => forget(addresses.iter().copied()).trouble(),
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

/// What became of the connections of some addresses.
#[derive(Debug)]
pub(crate) enum Forgotten {
    All,
    /// Time was up.
    Some,
    /// It cannot be known.
    Failed(netlink::Error),
}

impl Forgotten {
    /// What there is to tell of it.
    pub(crate) fn trouble(&self) -> Option<String> {
        let why = match self {
            Self::All => return None,
            Self::Some => format!("there are more connections than can be forgotten in {} s", PATIENCE.as_secs()),
            Self::Failed(error) => error.to_string(),
        };
        Some(format!("{why}: one to the address's last owner may reach the next one"))
    }
}

/// Forgets the connections of these addresses, those turned towards or away from them by NAT included.
pub(crate) fn forget(addresses: impl IntoIterator<Item = IpAddr>) -> Forgotten {
    forget_for(PATIENCE, addresses)
}

fn forget_for(patience: Duration, addresses: impl IntoIterator<Item = IpAddr>) -> Forgotten {
    let addresses: HashSet<IpAddr> = addresses.into_iter().collect();
    if addresses.is_empty() || conntrack::is_idle(Path::new(SYSCTL_ROOT)) {
        return Forgotten::All;
    }
    let begun = Instant::now();
    let delete = |socket: conntrack::Socket| socket.delete_by_addresses(&addresses, || begun.elapsed() < patience);
    match conntrack::Socket::open().and_then(delete) {
        Ok(deleted) if !deleted.all => Forgotten::Some,
        Err(error) if !error.is_unsupported() => Forgotten::Failed(error),
        Ok(_) | Err(_) => Forgotten::All,
    }
}
