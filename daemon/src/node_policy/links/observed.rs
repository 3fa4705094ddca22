//! What links the node has, and which of them policies may select.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use netlink::{Address, Link, Socket};
use tunables::links::LinkFacts;
use tunables::{Item, LinkOption, link_keys};
use vcn::Vnic;

use super::boot_target::{self, is_on};
use crate::settings::Settings;

/// Where the kernel shows devices; it is the host's, because the agent is in the host's network namespace.
const SYSFS: &str = "/sys";

/// VLANs on bonds on ports.
const DEPTH_MAX: u32 = 4;

/// A link, and what policies need to know about it.
#[derive(Clone, Debug)]
pub(super) struct ObservedLink {
    pub(super) link: Link,
    pub(super) facts: LinkFacts,
}

/// The links that policies may select; `vnics` has the primary VNIC first.
///
/// # Errors
/// When the kernel does not answer.
pub(super) fn read(settings: &Settings, vnics: &[Vnic]) -> Result<Vec<ObservedLink>, netlink::Error> {
    let mut kernel = Socket::open()?;
    let links = kernel.links()?;
    let folders = [settings.host_root.join("usr"), settings.data_dir.clone(), settings.state_dir.clone()];
    let targets = boot_target::read(Path::new(SYSFS), &folders);
    let nics = settings.nics();
    let selectable = |link: &&Link| {
        let is_nic = link.kind.as_deref() == nics.name() || matches!(link.kind.as_deref(), Some("bond" | "vlan"));
        !link.loopback && is_nic && !link.name.is_of_pod()
    };
    let addresses = kernel.addresses(None)?;
    let is_routed = |held: &&Address| matches!(held.address.ip(), IpAddr::V6(ip) if !ip.is_unicast_link_local());
    let mut observed: Vec<ObservedLink> = links.iter().filter(selectable).map(|link| describe(link, vnics)).collect();
    let of_vnics: Vec<u32> = observed.iter().filter(|it| it.facts.has_mtu_of_vnic).map(|it| it.link.index).collect();
    for it in &mut observed {
        // A smaller MTU of a port is one of the VLANs on it, too.
        it.facts.has_mtu_of_vnic |= of_vnics.iter().any(|upper| is_on(*upper, it.link.index, &links, DEPTH_MAX));
        it.facts.has_routed_ipv6 = addresses.iter().filter(is_routed).any(|held| held.index == it.link.index);
        it.facts.leads_to_boot_disk = targets.are_behind(&it.link, &links, &mut kernel);
    }
    Ok(observed)
}

fn describe(link: &Link, vnics: &[Vnic]) -> ObservedLink {
    let device = Path::new(SYSFS).join("class/net").join(link.name.as_str()).join("device");
    let driver = fs::read_link(device.join("driver")).ok();
    let vnic = vnics.iter().position(|vnic| [link.permanent_mac, link.mac].contains(&Some(vnic.mac)));
    let facts = LinkFacts {
        name: link.name.to_string(),
        mac: link.permanent_mac.or(link.mac).map(|mac| mac.to_string()),
        driver: driver.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned())),
        is_primary: vnic == Some(0),
        has_rdma: fs::read_dir(device.join("infiniband")).is_ok_and(|mut devices| devices.next().is_some()),
        // Also where it is switched off: with a smaller MTU the kernel forgets the link's IPv6 settings.
        has_ipv6: link.accept_ra.is_some(),
        has_routed_ipv6: false,
        is_configured: vnic.is_some(),
        has_mtu_of_vnic: vnic.is_some_and(|place| place > 0),
        leads_to_boot_disk: false,
    };
    ObservedLink { link: link.clone(), facts }
}

/// Whether the agent itself sets an option now: the link has become a VNIC's.
pub(super) fn is_of_agent(item: &Item, links: &[ObservedLink]) -> bool {
    let Item::Link { link, option } = item else { return false };
    let facts = links.iter().map(|it| &it.facts).find(|facts| facts.name == *link);
    facts.is_some_and(|facts| match option {
        LinkOption::Mtu => facts.has_mtu_of_vnic,
        LinkOption::Sysctl(key) => facts.is_configured && link_keys::is_configured(key),
        _ => false,
    })
}
