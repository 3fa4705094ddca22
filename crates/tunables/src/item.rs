//! What a policy sets, one by one: an item has one value on a node, and a text form that answers and statuses show.

use std::fmt;
use std::str::FromStr;

use api::node_policy::HostUnit;

use crate::keys;

/// One setting of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    /// A kernel setting, by its key with periods.
    Sysctl(String),
    /// Transparent huge pages, `enabled`.
    HugePages,
    /// An option of a link.
    Link {
        /// The name of the link.
        link: String,
        /// The option of the link.
        option: LinkOption,
    },
    /// A file of the host, by its path.
    File(String),
    /// Reservations of the kubelet.
    Kubelet,
    /// A unit whose files changed.
    Unit(HostUnit),
}

/// An option of a link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkOption {
    /// The MTU in bytes.
    Mtu,
    /// The length of the transmit queue in packets.
    TxQueueLength,
    /// Entries of the receive ring.
    RingRx,
    /// Entries of the transmit ring.
    RingTx,
    /// The number of receive queues.
    ChannelsRx,
    /// The number of transmit queues.
    ChannelsTx,
    /// The number of queues that receive and transmit.
    ChannelsCombined,
    /// An offload, by its name in [`api::node_policy::LinkOffloads`].
    Offload(&'static str),
    /// A kernel setting of the link, such as `ipv6.accept_ra`.
    Sysctl(String),
}

/// The item of transparent huge pages.
pub const HUGE_PAGES: &str = "transparentHugePages.enabled";

/// The item of the kubelet's reservations.
pub const KUBELET: &str = "kubelet";

/// The offloads, as in objects.
pub const OFFLOADS: [&str; 8] = ["rxChecksum", "txChecksum", "tso", "gso", "gro", "lro", "rxHash", "ntuple"];

impl Item {
    /// The item that the kernel sets to 0 when this one is set.
    pub fn counterpart(&self) -> Option<Self> {
        match self {
            Self::Sysctl(key) => keys::counterpart(key).map(|key| Self::Sysctl(key.to_owned())),
            _ => None,
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sysctl(key) => f.write_str(key),
            Self::HugePages => f.write_str(HUGE_PAGES),
            Self::Link { link, option } => write!(f, "link/{link}/{option}"),
            Self::File(path) => f.write_str(path),
            Self::Kubelet => f.write_str(KUBELET),
            Self::Unit(unit) => f.write_str(unit.as_str()),
        }
    }
}

impl fmt::Display for LinkOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mtu => f.write_str("mtu"),
            Self::TxQueueLength => f.write_str("txQueueLength"),
            Self::RingRx => f.write_str("ring.rx"),
            Self::RingTx => f.write_str("ring.tx"),
            Self::ChannelsRx => f.write_str("channels.rx"),
            Self::ChannelsTx => f.write_str("channels.tx"),
            Self::ChannelsCombined => f.write_str("channels.combined"),
            Self::Offload(name) => write!(f, "offloads.{name}"),
            Self::Sysctl(key) => f.write_str(key),
        }
    }
}

impl FromStr for Item {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.strip_prefix("link/") {
            Some(rest) => {
                let (link, option) = rest.split_once('/').ok_or(())?;
                Ok(Self::Link { link: link.to_owned(), option: option.parse()? })
            }
            None if text == HUGE_PAGES => Ok(Self::HugePages),
            None if text == KUBELET => Ok(Self::Kubelet),
            None if text.starts_with('/') => Ok(Self::File(text.to_owned())),
            None if text.is_empty() => Err(()),
            None => match HostUnit::from_word(text) {
                Some(unit) => Ok(Self::Unit(unit)),
                None => Ok(Self::Sysctl(text.to_owned())),
            },
        }
    }
}

impl FromStr for LinkOption {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        const PLAIN: [LinkOption; 7] = [
            LinkOption::Mtu,
            LinkOption::TxQueueLength,
            LinkOption::RingRx,
            LinkOption::RingTx,
            LinkOption::ChannelsRx,
            LinkOption::ChannelsTx,
            LinkOption::ChannelsCombined,
        ];
        if let Some(plain) = PLAIN.into_iter().find(|option| option.to_string() == text) {
            return Ok(plain);
        }
        match text.strip_prefix("offloads.") {
            Some(name) => OFFLOADS.into_iter().find(|known| *known == name).map(Self::Offload).ok_or(()),
            None if text.starts_with("ipv") => Ok(Self::Sysctl(text.to_owned())),
            None => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_is_read_as_written() {
        for text in [
            "vm.max_map_count",
            "transparentHugePages.enabled",
            "link/ens5/mtu",
            "link/ens5.100/ring.rx",
            "link/ens5/channels.combined",
            "link/ens5/offloads.gro",
            "link/ens5/ipv6.neigh.gc_stale_time",
            "/etc/sysctl.d/90-web.conf",
            "kubelet",
            "kubelet.service",
        ] {
            assert_eq!(text.parse::<Item>().unwrap().to_string(), text);
        }
        for text in ["", "link/ens5", "link/ens5/speed", "link/ens5/offloads.magic"] {
            assert_eq!(text.parse::<Item>(), Err(()), "{text}");
        }
    }
}
