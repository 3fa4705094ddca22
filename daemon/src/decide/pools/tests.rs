//! What pods may have in which state of things.

use std::time::Instant;

use datapath::host::Placement;
use vcn::{LinkKindName, Mtu, TableId};

use super::*;
use crate::fixture::{npn, vm_vnics, vnic};

const NOW: BootTime = BootTime(90_000);

fn boot() -> BootId {
    BootId::from_text("this-boot")
}

fn hosted() -> Vec<HostVnic> {
    let vnic = vm_vnics().remove(1);
    let placement = Placement::Device { link: "ens5".parse().unwrap() };
    vec![HostVnic {
        vnic,
        placement,
        table: TableId(1000),
        mtu: Mtu::VCN,
        pod_blocks: Vec::new(),
        on_link: Vec::new(),
        routes: Vec::new(),
    }]
}

fn facts(npn: Result<Option<NativePodNetwork>, String>) -> NodeFacts {
    let mut facts = NodeFacts::default();
    facts.npn.absorb(npn, Instant::now());
    facts
}

fn on(vnics: &[HostVnic]) -> ConfiguredVnics<'_> {
    ConfiguredVnics { vnics, ipv6: true, nics: &LinkKindName::HARDWARE }
}

fn with_conditions(facts: &NodeFacts, hosted: ConfiguredVnics<'_>, current: Option<&Pools>) -> (Pools, Vec<Condition>) {
    next(facts, hosted, current, WriteTime { boot: &boot(), now: NOW }, &[])
}

fn pools(facts: &NodeFacts, hosted: &[HostVnic], current: Option<&Pools>) -> Pools {
    with_conditions(facts, on(hosted), current).0
}

fn addresses(pools: &Pools) -> Vec<String> {
    let of = |vnic: &VnicPool| vnic.families.ipv4.iter().flat_map(FamilyPool::candidates).collect::<Vec<_>>();
    pools.vnics.iter().flat_map(of).map(|address| address.to_string()).collect()
}

#[test]
fn finished_native_pod_network_offers_its_addresses_without_the_hosts() {
    let pools = pools(&facts(Ok(Some(npn("SUCCESS")))), &hosted(), None);
    assert_eq!(addresses(&pools), ["10.0.33.17", "10.0.33.18", "10.0.33.19", "10.0.33.40"]);
    let reserved = &pools.vnics[0].families.ipv4.as_ref().unwrap().reserved;
    assert_eq!(reserved.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.33.7", "10.0.33.16"]);
    assert_eq!(pools.reason, None);
}

#[test]
fn link_mac_is_fixed_except_on_a_bare_metal_port() {
    let port = Placement::Device { link: "ens300f1".parse().unwrap() };
    let (parent, tag) = ("ens300f0".parse().unwrap(), vcn::VlanTag::new(7).unwrap());
    let vlan = Placement::Vlan { link: "nic0.7".parse().unwrap(), parent, tag };
    let fixed = |nic_index, placement| {
        let mut vnics = hosted();
        vnics[0].vnic.nic_index = nic_index;
        vnics[0].placement = placement;
        let made = pools(&facts(Ok(Some(npn("SUCCESS")))), &vnics, None);
        // One that was written by an older agent is put right, too, before OKE's list is read.
        let mut older = made.clone();
        older.vnics[0].link_has_mac = false;
        let kept = pools(&facts(Err("no answer".into())), &vnics, Some(&older));
        assert_eq!(kept.vnics, made.vnics);
        made.vnics[0].link_has_mac
    };
    let device = Placement::Device { link: "ens5".parse().unwrap() };
    assert_eq!([fixed(None, device), fixed(Some(0), vlan), fixed(Some(1), port)], [true, true, false]);
}

#[test]
fn pools_name_what_is_awaited_and_stay_once_published() {
    let published = pools(&facts(Ok(Some(npn("SUCCESS")))), &hosted(), None);
    for (npn, reason) in [
        (Ok(Some(npn("BACKOFF"))), "NativePodNetwork is BACKOFF: FailedToCreatePrivateIP"),
        (Ok(None), "this instance has no NativePodNetwork (yet)"),
        (Err("no answer".into()), "the NativePodNetwork cannot be read: no answer"),
    ] {
        let facts = facts(npn);
        for (current, vnics) in [(None, &[][..]), (Some(&published), &published.vnics)] {
            let now = pools(&facts, &hosted(), current);
            assert_eq!((now.vnics.as_slice(), now.reason.as_deref()), (vnics, Some(reason)));
        }
    }
}

/// As an older agent published them.
#[test]
fn published_addresses_that_are_refused_now_are_removed() {
    let mut published = pools(&facts(Ok(Some(npn("SUCCESS")))), &hosted(), None);
    let known = addresses(&published);
    let refused = ["169.254.169.254/32", "10.0.10.7/32", "10.0.33.1/32"]
        .map(|text| text.parse::<ipnetwork::IpNetwork>().unwrap());
    published.vnics[0].families.ipv4.as_mut().unwrap().addresses.extend(refused);
    let mut facts = facts(Err("no answer".into()));
    facts.vnics.absorb(Ok(vm_vnics()), Instant::now());
    assert_eq!(addresses(&pools(&facts, &hosted(), Some(&published))), known);
}

#[test]
fn published_pool_follows_its_vnic() {
    let published = pools(&facts(Ok(Some(npn("SUCCESS")))), &hosted(), None);
    let mut moved = hosted();
    moved[0].placement = Placement::Device { link: "ens9".parse().unwrap() };
    assert_eq!(pools(&facts(Ok(None)), &moved, Some(&published)).vnics[0].link.as_str(), "ens9");
    assert_eq!(pools(&facts(Ok(None)), &[], Some(&published)).vnics, []);
}

#[test]
fn vnic_out_of_sync_is_left_out_with_a_reason() {
    let trouble = Condition::degraded(Reason::LinkMissing, "no link").about("ocid1.vnic.oc1.iad.pods");
    let other = Condition::degraded(Reason::LinkMissing, "no link").about("ocid1.vnic.oc1.iad.storage");
    let (pools, _) =
        next(&facts(Ok(Some(npn("SUCCESS")))), on(&[]), None, WriteTime { boot: &boot(), now: NOW }, &[trouble, other]);
    assert_eq!(pools.vnics, []);
    assert_eq!(pools.reason.as_deref(), Some("LinkMissing (ocid1.vnic.oc1.iad.pods): no link"));
}

#[test]
fn family_without_host_routes_is_left_out_and_reported() {
    let mut hosted = hosted();
    hosted[0].vnic.addressing.ipv4 = None;
    let (pools, conditions) = with_conditions(&facts(Ok(Some(npn("SUCCESS")))), on(&hosted), None);
    assert!(pools.vnics[0].families.is_empty());
    assert_eq!(conditions.iter().map(|c| c.reason).collect::<Vec<_>>(), [Reason::RouterUnknown]);
    assert!(pools.reason.unwrap().starts_with("RouterUnknown"));
}

#[test]
fn unknown_fields_of_pools_stay() {
    let mut published = pools(&facts(Ok(Some(npn("SUCCESS")))), &hosted(), None);
    published.extra.insert("later".into(), true.into());
    assert_eq!(pools(&facts(Ok(None)), &hosted(), Some(&published)).extra, published.extra);
}

#[test]
fn time_since_pools_are_empty_is_kept() {
    let (full, waiting) = (facts(Ok(Some(npn("SUCCESS")))), facts(Ok(Some(npn("BACKOFF")))));
    let at = |facts: &NodeFacts, hosted: &[HostVnic], current: Option<&Pools>, now: u64| {
        next(facts, on(hosted), current, WriteTime { boot: &boot(), now: BootTime(now) }, &[]).0
    };
    let first = at(&waiting, &hosted(), None, 500);
    assert_eq!(first.empty_since, Some(BootTime(0)), "none in this boot");
    assert_eq!(at(&facts(Ok(None)), &hosted(), Some(&first), 600).empty_since, Some(BootTime(0)));
    let published = at(&full, &hosted(), Some(&first), 700);
    assert_eq!(published.empty_since, None);
    let emptied = at(&full, &[], Some(&published), 800);
    assert_eq!(emptied.empty_since, Some(BootTime(800)));
    let reasons = at(&facts(Err("no answer".into())), &[], Some(&emptied), 900);
    assert!(reasons.reason != emptied.reason && reasons.empty_since == Some(BootTime(800)));
}

#[test]
fn pods_get_the_families_that_oke_created_addresses_of() {
    let mut npn = npn("SUCCESS");
    npn.vnics[0].addressing.ipv6 = npn.vnics[0].addressing.ipv4.clone();
    let both = facts(Ok(Some(npn)));
    let vnics = hosted();
    let pools = pools(&both, &vnics, None);
    assert_eq!((pools.offered(), pools.families()), (vec![Family::Ipv4], vec![Family::Ipv4, Family::Ipv6]));
    let (_, conditions) = with_conditions(&both, on(&vnics), None);
    assert_eq!(conditions.iter().map(|it| it.reason).collect::<Vec<_>>(), [Reason::RouterUnknown]);
    let (without_ipv6, conditions) = with_conditions(&both, ConfiguredVnics { ipv6: false, ..on(&vnics) }, None);
    assert_eq!(without_ipv6.families(), [Family::Ipv4], "the kernel speaks no IPv6");
    assert_eq!((conditions, without_ipv6.reason), (vec![], None), "its addresses are ignored");
    let later = self::pools(&facts(Ok(None)), &vnics, Some(&pools));
    assert_eq!(later.families(), pools.families(), "as long as nothing newer is known");
}

/// On bare metal the link of a detached VNIC stays. Running pods are not concerned.
#[test]
fn unlisted_bare_metal_vnic_serves_new_pods_only_as_the_last_one() {
    let on_port = |mut vnic: Vnic| {
        vnic.nic_index = Some(0);
        vnic
    };
    let vnics = [vm_vnics(), vec![vnic("more", 0x0c, "10.0.34")]].concat();
    let metal: Vec<Vnic> = vnics.iter().cloned().map(on_port).collect();
    let host = |vnic: &Vnic| HostVnic { vnic: vnic.clone(), ..hosted().remove(0) };
    let mut both = npn("SUCCESS");
    both.vnics.push(NpnVnic { vnic_id: metal[2].id.clone(), ..both.vnics[0].clone() });
    // What the list has from the second time on; then which VNICs are hosted.
    let offered = |known: &[Vnic], listed: &[usize], hosted: &[usize], state: &str| {
        let mut facts = facts(Ok(Some(both.clone())));
        let hosts: Vec<HostVnic> = hosted.iter().map(|at| host(&known[*at])).collect();
        let before = pools(&facts, &hosts, None);
        facts.npn.absorb(Ok(Some(NativePodNetwork { state: npn(state).state, ..both.clone() })), Instant::now());
        for vnics in [known.to_vec(), listed.iter().map(|at| known[*at].clone()).collect()] {
            facts.absorb_vnics(Ok(vnics.into()), std::time::Duration::ZERO, Instant::now(), |_| true);
        }
        let ids = |pools: &Pools| pools.vnics.iter().map(|it| it.vnic_id.unique_id().to_owned()).collect::<Vec<_>>();
        ids(&pools(&facts, &hosts, Some(&before)))
    };
    for state in ["SUCCESS", "BACKOFF"] {
        assert_eq!(offered(&metal, &[0, 1, 2], &[1, 2], state), ["pods", "more"], "all are listed");
        assert_eq!(offered(&metal, &[0, 2], &[1, 2], state), ["more"]);
        assert_eq!(offered(&metal, &[0], &[1, 2], state), ["pods", "more"], "no other is listed");
        assert_eq!(offered(&metal, &[0, 2], &[1], state), ["pods"], "the other one is not configured");
        assert_eq!(
            offered(&vnics, &[0, 2], &[1, 2], state),
            ["pods", "more"],
            "a virtual machine's device is still here"
        );
    }
}
