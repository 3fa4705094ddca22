//! From JSON to `NativePodNetwork`, both shapes.

use std::net::IpAddr;
use std::str::FromStr;

use ipnetwork::IpNetwork;
use serde_json::Value;
use vcn::{Family, Field, FieldError, PerFamily};

use super::{MAX_POD_ADDRESSES, MAX_VNICS, NativePodNetwork, NpnAddressing, NpnState, NpnVnic};

pub(super) fn network(document: &Field<'_>) -> Result<NativePodNetwork, FieldError> {
    let kind = document.member("kind")?;
    // An API server's refusal is JSON too (kind Status); without this it would read as "spec.id is missing".
    if kind.text()?.is_some_and(|kind| kind != "NativePodNetwork") {
        return Err(kind.unexpected("\"NativePodNetwork\""));
    }
    let spec = document.member("spec")?;
    let id = spec.member("id")?;
    let status = document.member("status")?;
    let state = state(status.member("state")?.text()?);
    let (mut vnics, mut unfinished) = (Vec::new(), Vec::new());
    let list = status.member("vnics")?;
    let entries = list.elements()?;
    // Before any of it is read: a document without bound would cost every reconcile.
    if entries.len() > MAX_VNICS {
        return Err(list.unexpected("a list of at most 256 VNICs"));
    }
    if pod_addresses(&entries) > MAX_POD_ADDRESSES {
        return Err(list.unexpected("a list with at most 4096 addresses for pods in all"));
    }
    for entry in entries {
        match vnic(&entry) {
            Ok(vnic) => vnics.push(vnic),
            Err(error) if state == NpnState::Success => return Err(error),
            // Half made, as the state says. Failing here would hide the reason that OKE gives for it.
            Err(_) => unfinished.extend(entry.member("vnicId").and_then(|id| id.parsed("an OCID")).ok().flatten()),
        }
    }
    Ok(NativePodNetwork {
        name: document.member("metadata")?.member("name")?.text()?.map(str::to_owned),
        instance: id.parsed("an OCID")?.ok_or_else(|| id.missing())?,
        state,
        reason: status.member("reason")?.text()?.map(str::to_owned),
        vnics,
        unfinished,
    })
}

/// How many addresses for pods the entries list, both shapes together.
fn pod_addresses(entries: &[Field<'_>]) -> usize {
    let lists = |entry: &Value| ["podAddresses", "addresses"].map(|name| entry.get(name)?.as_array().map(Vec::len));
    entries.iter().filter_map(Field::value).flat_map(lists).flatten().sum()
}

fn state(word: Option<&str>) -> NpnState {
    match word {
        None => NpnState::Unreported,
        Some("IN_PROGRESS") => NpnState::InProgress,
        Some("SUCCESS") => NpnState::Success,
        Some("BACKOFF") => NpnState::Backoff,
        Some(other) => NpnState::Unknown(other.to_owned()),
    }
}

fn vnic(entry: &Field<'_>) -> Result<NpnVnic, FieldError> {
    let vnic_id = entry.member("vnicId")?;
    let mac = entry.member("macAddress")?;
    let mut addressing = PerFamily::default();
    for family in Family::ALL {
        let found = family_of(entry, family)?;
        if found != NpnAddressing::default() {
            *addressing.slot(family) = Some(found);
        }
    }
    Ok(NpnVnic {
        vnic_id: vnic_id.parsed("an OCID")?.ok_or_else(|| vnic_id.missing())?,
        mac: mac.parsed("an Ethernet address")?.ok_or_else(|| mac.missing())?,
        addressing,
        application_resources: application_resources(entry)?,
    })
}

fn application_resources(entry: &Field<'_>) -> Result<Vec<String>, FieldError> {
    let list = entry.member("nicConfiguration")?.member("applicationResources")?;
    list.elements()?.iter().filter_map(|name| name.text().map(|text| text.map(str::to_owned)).transpose()).collect()
}

fn family_of(entry: &Field<'_>, family: Family) -> Result<NpnAddressing, FieldError> {
    let first = |plural, legacy| blocks(entry, family, plural, legacy).map(|found| found.into_iter().next());
    let subnets: Vec<IpNetwork> = listed(entry, family, "subnetCidrs")?.into_iter().map(without_host_bits).collect();
    Ok(NpnAddressing {
        router: first("routerIps", "routerIp")?.map(|block| block.ip()),
        subnet: first("subnetCidrs", "subnetCidr")?.map(without_host_bits),
        subnets,
        host: first("hostAddresses", "hostAddress")?.map(|block| block.ip()),
        pods: blocks(entry, family, "podAddresses", "addresses")?.into_iter().map(without_host_bits).collect(),
    })
}

/// What two fields say about one family: the list of `{v4, v6}` if it has anything for it, else the legacy field.
fn blocks(entry: &Field<'_>, family: Family, plural: &str, legacy: &str) -> Result<Vec<IpNetwork>, FieldError> {
    let mut found = listed(entry, family, plural)?;
    if found.is_empty() {
        for field in entry.member(legacy)?.one_or_many() {
            let block = field.parsed::<Block>("an address or CIDR block")?;
            // Legacy fields name no family: each value belongs to the one that it is of.
            found.extend(block.map(|Block(block)| block).filter(|block| Family::of(block.ip()) == family));
        }
    }
    Ok(found)
}

/// What a list of `{v4, v6}` has for one family.
fn listed(entry: &Field<'_>, family: Family, plural: &str) -> Result<Vec<IpNetwork>, FieldError> {
    let (key, expected) = match family {
        Family::Ipv4 => ("v4", "an IPv4 address or CIDR block"),
        Family::Ipv6 => ("v6", "an IPv6 address or CIDR block"),
    };
    let mut found = Vec::new();
    for pair in entry.member(plural)?.elements()? {
        let field = pair.member(key)?;
        match field.parsed::<Block>(expected)? {
            Some(Block(block)) if Family::of(block.ip()) != family => return Err(field.unexpected(expected)),
            Some(Block(block)) => found.push(block),
            None => {}
        }
    }
    Ok(found)
}

/// An address (then /32 or /128) or a CIDR block.
struct Block(IpNetwork);

impl FromStr for Block {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self(IpNetwork::from(address)));
        }
        // `IpNetwork` would also take a netmask after the slash; the API never writes one.
        let (address, prefix) = text.split_once('/').ok_or(())?;
        let (address, prefix) = (address.parse().map_err(|_| ())?, prefix.parse().map_err(|_| ())?);
        IpNetwork::new(address, prefix).map(Self).map_err(|_| ())
    }
}

/// So that equal blocks compare equal.
fn without_host_bits(block: IpNetwork) -> IpNetwork {
    IpNetwork::new(block.network(), block.prefix()).unwrap_or(block)
}
