//! What there is of the host's network: our objects, and what is requested.

use ipnetwork::IpNetwork;
use netlink::{RouteFilter, nft};
use vcn::{Family, IfName, LINK_ALIAS_PREFIX, NFT_TABLE, PODS_TABLE, PROTOCOL, RulePriorities};

use super::link_local;
use crate::error::during;
use crate::object::{is_link_local, rule_seen};
use crate::{AddressSpec, Error, LinkKind, LinkSpec, NftTables, Object, Place, Places, RouteSpec, Snapshot};

/// Observes the desired links, addresses and settings, and each VLAN link, address, route, rule and nft rule with our
/// mark.
/// Foreign addresses, routes and rules are not listed, so a plan never deletes them (promise P2).
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn observe(desired: &[Object], places: &mut Places) -> Result<Vec<(Place, Object)>, Error> {
    let host =
        Snapshot::with_routes(&RouteFilter { protocol: Some(PROTOCOL), ..RouteFilter::all(Family::Ipv4) }, places)?;
    let rules = rules(&host);
    let mut found = links(desired, &host);
    // Before the addresses that they mark as our own, so that a deletion, which goes backwards, ends with them.
    found.extend(rules.iter().cloned());
    found.extend(addresses(desired, &rules, &host));
    found.extend(settings(desired, places));
    found.extend(routes(&host));
    found.extend(nft_tables()?);
    Ok(found.into_iter().map(|object| (Place::Host, object)).collect())
}

fn links(desired: &[Object], host: &Snapshot) -> Vec<Object> {
    let is_desired =
        |name: &IfName| desired.iter().any(|object| matches!(object, Object::Link(link) if link.name == *name));
    let ours = |link: &netlink::Link| {
        link.vlan.is_some() && link.alias.as_ref().is_some_and(|alias| alias.starts_with(LINK_ALIAS_PREFIX))
    };
    let describe = |link: &netlink::Link| {
        let kind = match (link.vlan, link.parent.and_then(|parent| host.name(parent))) {
            (Some(tag), Some(parent)) => LinkKind::Vlan { parent: parent.clone(), tag },
            _ => LinkKind::Device,
        };
        Object::Link(LinkSpec::seen(link.clone(), kind))
    };
    host.links.iter().filter(|link| is_desired(&link.name) || ours(link)).map(describe).collect()
}

/// The desired addresses, and our own that are not desired any more. Our own are single addresses from which our rule leads.
/// Next to one, the link-local address of the MAC is our own if it is exempt from the check for duplicates: the kernel makes none
/// like that. Any link-local address of a link counts as the desired one.
fn addresses(desired: &[Object], rules: &[Object], host: &Snapshot) -> Vec<Object> {
    let (links, found) = (&host.links, &host.addresses);
    let ours = |address: IpNetwork| {
        let leads = |rule: &Object| matches!(rule, Object::Rule(rule) if rule.from == Some(address));
        address.prefix() == Family::of(address.ip()).host_prefix() && rules.iter().any(leads)
    };
    let beside = |it: &netlink::Address| {
        let own = links.iter().find(|link| link.index == it.index).and_then(|link| link.mac).map(link_local);
        let vnics =
            |other: &netlink::Address| other.index == it.index && other.address.is_ipv6() && ours(other.address);
        it.nodad && own == Some(it.address) && found.iter().any(vnics)
    };
    let described = found.iter().filter_map(|address| {
        let link = host.name(address.index)?.clone();
        let object = Object::Address(AddressSpec { link, address: address.address });
        (desired.contains(&object) || ours(address.address) || beside(address)).then_some(object)
    });
    let mut described: Vec<Object> = described.collect();
    let does_for = |desired_address: &AddressSpec| {
        // One that is still being checked for duplicates will do.
        let others = found.iter().filter(|it| is_link_local(it.address) && !it.dad_failed);
        is_link_local(desired_address.address)
            && others.filter_map(|it| host.name(it.index)).any(|link| *link == desired_address.link)
    };
    for object in desired {
        if let Object::Address(desired_address) = object
            && does_for(desired_address)
            && !described.contains(object)
        {
            described.push(object.clone());
        }
    }
    described
}

/// A link's settings do not exist before the link does; the plan then sets them after making it.
fn settings(desired: &[Object], places: &Places) -> impl Iterator<Item = Object> {
    desired.iter().filter_map(|object| match object {
        Object::Sysctl(setting) => places.setting(Place::Host, &setting.key).map(Object::Sysctl),
        _ => None,
    })
}

/// Our routes in the tables of VNICs: those to pods are the plugin's.
fn routes(host: &Snapshot) -> impl Iterator<Item = Object> {
    host.routes.iter().filter(|route| route.table != PODS_TABLE).filter_map(|route| {
        let link = host.name(route.oif).filter(|link| !link.is_of_pod())?;
        Some(Object::Route(RouteSpec::seen(route, link.clone())))
    })
}

/// Our rules about the host; those about pods are the plugin's.
fn rules(host: &Snapshot) -> Vec<Object> {
    let ours = |rule: &&netlink::Rule| rule.protocol == PROTOCOL && rule.priority != RulePriorities::FROM_POD;
    host.rules.iter().filter(ours).map(|rule| Object::Rule(rule_seen(rule))).collect()
}

/// The rules of all of our tables. Where one of them is missing, so are its rules, and all are written again.
fn nft_tables() -> Result<Option<Object>, Error> {
    let read = |family| nft::NftSocket::open().and_then(|mut socket| socket.comments(family, NFT_TABLE));
    let mut found = None::<Vec<String>>;
    for family in nft::TableFamily::ALL {
        match read(family) {
            Ok(texts) => texts.into_iter().for_each(|texts| found.get_or_insert_default().extend(texts)),
            // The plan then says "nft add tables", and applying it says that the kernel cannot.
            Err(error) if error.is_unsupported() => {}
            Err(error) => return Err(during(format_args!("nft table {family} {NFT_TABLE}"))(error)),
        }
    }
    Ok(found.map(|texts| Object::NftTable(NftTables { texts, tables: Vec::new() })))
}
