//! A node in namespaces: a host with two VNIC links, whose far ends are routers. Each VNIC has a table of its own.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::Path;

use ipam::{BootId, FamilyPool, Pools, VnicPool};
use netlink::{Address, LinkChange, LinkKind, Netns, NewLink, Peer, Route, Rule, Socket, Sysctls};
use vcn::{Family, IfName, Mtu, PODS_TABLE, PROTOCOL, PerFamily, Purpose, RulePriorities, TableId};

/// As many as VMs usually have for pods; it takes two to choose between.
const VNICS: u8 = 2;

/// The node.
pub(crate) struct Node {
    pub(crate) host: Netns,
    /// The state of all contenders, in memory: none pays for a disk.
    pub(crate) state: tempfile::TempDir,
    /// The far ends of the VNIC links live as long as their namespaces.
    _routers: Vec<Netns>,
}

impl Node {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let host = Netns::create()?;
        let routers = (0..VNICS).map(|_| Netns::create()).collect::<Result<Vec<_>, _>>()?;
        host.run(|| -> anyhow::Result<()> {
            let mut socket = Socket::open()?;
            up(&mut socket, &name("lo")?)?;
            let sysctls = Sysctls::default();
            for family in Family::ALL {
                socket.add_rule(&Rule::new(family, RulePriorities::TO_PODS, PODS_TABLE, PROTOCOL))?;
            }
            sysctls.write(&["net", "ipv4", "ip_forward"], "1")?;
            sysctls.write(&["net", "ipv6", "conf", "all", "forwarding"], "1")?;
            (0..VNICS).zip(&routers).try_for_each(|(number, router)| host_side(number, router, &mut socket))
        })??;
        for (number, router) in (0..VNICS).zip(&routers) {
            router.run(|| router_side(number))??;
        }
        let state = tempfile::Builder::new().prefix("pod-path-bench-").tempdir_in(memory())?;
        Ok(Self { host, state, _routers: routers })
    }
}

/// Writes the pools that our plugin reads: 126 addresses on each VNIC, so that a burst of 110 pods fits.
pub(crate) fn write_pools(state: &Path, families: &[Family]) -> anyhow::Result<()> {
    let vnics = (0..VNICS).map(|number| {
        let pool = |family| -> anyhow::Result<Option<FamilyPool>> {
            let (router, own, addresses) = match family {
                Family::Ipv4 => (ip4(number, 1), ip4(number, 2), format!("10.0.{number}.128/25")),
                Family::Ipv6 => (ip6(number, 1), ip6(number, 2), format!("2001:db8:{number}::80/121")),
            };
            let pool = FamilyPool { router, reserved: vec![own], addresses: vec![addresses.parse()?] };
            Ok(families.contains(&family).then_some(pool))
        };
        Ok(VnicPool {
            vnic_id: format!("ocid1.vnic.oc1.iad.{}{number}", "a".repeat(59)).parse()?,
            link: vnic_link(number)?,
            mac: format!("02:00:17:00:00:0{number}").parse()?,
            link_has_mac: false,
            mtu: Mtu::VCN,
            table: table(number),
            purpose: Purpose::Pods,
            attach: None,
            families: PerFamily { ipv4: pool(Family::Ipv4)?, ipv6: pool(Family::Ipv6)? },
        })
    });
    Pools::new(BootId::current()?, vnics.collect::<anyhow::Result<_>>()?, None).write(state)?;
    Ok(())
}

fn host_side(number: u8, router: &Netns, socket: &mut Socket) -> anyhow::Result<()> {
    let link = vnic_link(number)?;
    let peer = Peer { name: name("port")?, mac: None, mtu: Some(Mtu::VCN), netns: Some(router.as_fd()) };
    let mut veth = NewLink::new(link.clone(), LinkKind::Veth(peer));
    veth.mtu = Some(Mtu::VCN);
    socket.add_link(&veth)?;
    let sysctls = Sysctls::default();
    sysctls.write(&["net", "ipv6", "conf", link.as_str(), "accept_dad"], "0")?;
    sysctls.write(&["net", "ipv6", "conf", link.as_str(), "proxy_ndp"], "1")?;
    sysctls.write(&["net", "ipv4", "conf", link.as_str(), "rp_filter"], "2")?;
    let index = up(socket, &link)?;
    for (own, via) in [(ip4(number, 2), ip4(number, 1)), (ip6(number, 2), ip6(number, 1))] {
        let mut address = Address::new(index, own.into());
        address.nodad = true;
        socket.add_address(&address)?;
        let mut on_link = Route::new(via.into(), index, table(number), PROTOCOL);
        on_link.scope_link = via.is_ipv4();
        socket.add_route(&on_link)?;
        let mut default = Route::new(datapath::pod::everything(Family::of(via)), index, table(number), PROTOCOL);
        default.gateway = Some(via);
        default.onlink = via.is_ipv4();
        socket.add_route(&default)?;
    }
    Ok(())
}

fn router_side(number: u8) -> anyhow::Result<()> {
    let (mut socket, port) = (Socket::open()?, name("port")?);
    Sysctls::default().write(&["net", "ipv6", "conf", port.as_str(), "accept_dad"], "0")?;
    let index = up(&mut socket, &port)?;
    for address in [format!("{}/24", ip4(number, 1)), format!("{}/64", ip6(number, 1))] {
        let mut address = Address::new(index, address.parse()?);
        address.nodad = true;
        socket.add_address(&address)?;
    }
    Ok(())
}

fn up(socket: &mut Socket, link: &IfName) -> anyhow::Result<u32> {
    let index = socket.index_of(link)?;
    socket.change_link(index, &[LinkChange::Up])?;
    Ok(index)
}

/// A directory in memory: /run is fresh where tests/runner started us.
fn memory() -> &'static Path {
    Path::new(if std::env::var_os("OKE_TEST_ISOLATED").is_some() { "/run" } else { "/dev/shm" })
}

fn vnic_link(number: u8) -> anyhow::Result<IfName> {
    name(&format!("ens{}", 5 + number))
}

fn name(text: &str) -> anyhow::Result<IfName> {
    Ok(IfName::new(text)?)
}

fn table(number: u8) -> TableId {
    TableId(vcn::TABLE_BASE + 1 + u32::from(number))
}

fn ip4(number: u8, host: u8) -> IpAddr {
    IpAddr::from([10, 0, number, host])
}

fn ip6(number: u8, host: u8) -> IpAddr {
    IpAddr::from([0x2001, 0xdb8, number.into(), 0, 0, 0, 0, host.into()])
}
