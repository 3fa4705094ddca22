//! From the service's JSON to our types. Unknown fields are ignored; a reply that we cannot use names the field.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;
use vcn::{Family, Field, FieldError, Instance, Ocid, PerFamily, SubnetAddressing, VlanTag, Vnic};

use crate::error::beginning;
use crate::{Error, IncompleteVnic, UnusableVnic, VnicList};

/// Custom metadata that networking never needs: long, and users put secrets there, which must not get into a log.
const LEFT_OUT: [&str; 3] = ["user_data", "ssh_authorized_keys", "oke_init_script"];

/// The reply to `instance/`.
pub(crate) fn instance(url: &str, body: &[u8]) -> Result<Instance, Error> {
    read(url, body, |document| {
        let id = document.member("id")?;
        let shape = document.member("shape")?;
        Ok(Instance {
            id: id.parsed("an OCID")?.ok_or_else(|| id.missing())?,
            shape: shape.text()?.ok_or_else(|| shape.missing())?.to_owned(),
            region: region(document)?,
            max_vnic_attachments: document.member("shapeConfig")?.member("maxVnicAttachments")?.number()?,
            metadata: custom(&document.member("metadata")?),
        })
    })
}

/// The reply to `vnics/`. An entry that cannot be used does not hide the others. The smallest usable entry has the VNIC's id and
/// MAC. If a family's data is incomplete, only that family is missing.
pub(crate) fn vnics(url: &str, body: &[u8]) -> Result<VnicList, Error> {
    read(url, body, |document| {
        let entries = document.elements()?;
        let mut list = VnicList::default();
        for (place, entry) in entries.iter().enumerate() {
            match vnic(entry) {
                Ok((vnic, incomplete)) => {
                    let id = &vnic.id;
                    let incomplete = incomplete.into_iter().map(|reason| IncompleteVnic { id: id.clone(), reason });
                    // Nothing is required of the primary one's addresses, which are the operating system's.
                    list.incomplete.extend(incomplete.filter(|_| place > 0));
                    list.vnics.push(vnic);
                }
                Err(error) => list.unusable.push(UnusableVnic { place, id: id(entry), reason: error.to_string() }),
            }
        }
        // An instance cannot be without its primary VNIC: believing this would take the others down.
        match entries.is_empty() {
            true => Err(document.unexpected("a list that begins with the primary VNIC")),
            false => Ok(list),
        }
    })
}

fn id(entry: &Field<'_>) -> Option<Ocid> {
    entry.member("vnicId").ok()?.parsed("an OCID").ok()?
}

fn read<T>(url: &str, body: &[u8], of: impl FnOnce(&Field<'_>) -> Result<T, FieldError>) -> Result<T, Error> {
    let reading =
        |as_json| format!("reading the metadata service's reply to {url}{as_json} (it begins {:?})", beginning(body));
    let value: Value = serde_json::from_slice(body).map_err(|error| Error::new(reading(" as JSON"), error))?;
    of(&Field::root(&value)).map_err(|error| Error::new(reading(""), error))
}

/// `region` alone may be one of the two historical short keys; the canonical name is missing on old instances.
fn region(document: &Field<'_>) -> Result<String, FieldError> {
    if let Some(name) = document.member("canonicalRegionName")?.text()? {
        return Ok(name.to_owned());
    }
    if let Some(name) = document.member("regionInfo")?.member("regionIdentifier")?.text()? {
        return Ok(name.to_owned());
    }
    let region = document.member("region")?;
    Ok(match region.text()?.ok_or_else(|| region.missing())? {
        "iad" => "us-ashburn-1",
        "phx" => "us-phoenix-1",
        name => name,
    }
    .to_owned())
}

fn custom(metadata: &Field<'_>) -> BTreeMap<String, String> {
    let members = metadata.value().and_then(Value::as_object).into_iter().flatten();
    members
        .filter(|(name, value)| !LEFT_OUT.contains(&name.as_str()) && vcn::is_given(value))
        .map(|(name, value)| (name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        .collect()
}

/// The VNIC, and what its families lack.
fn vnic(entry: &Field<'_>) -> Result<(Vnic, Vec<String>), FieldError> {
    let id = entry.member("vnicId")?;
    let mac = entry.member("macAddr")?;
    let nic_index = entry.member("nicIndex")?.number()?;
    let mut incomplete = Vec::new();
    let mut family = |family| {
        addressing(entry, family).unwrap_or_else(|error| {
            incomplete.push(format!("{family}: {error}"));
            None
        })
    };
    let addressing = PerFamily { ipv4: family(Family::Ipv4), ipv6: family(Family::Ipv6) };
    let vnic = Vnic {
        id: id.parsed("an OCID")?.ok_or_else(|| id.missing())?,
        mac: mac.parsed("an Ethernet address")?.ok_or_else(|| mac.missing())?,
        nic_index,
        vlan_tag: if nic_index.is_some() { vlan_tag(&entry.member("vlanTag")?)? } else { None },
        addressing,
    };
    Ok((vnic, incomplete))
}

/// Bare metal only; 0 says that the VNIC is the port itself.
fn vlan_tag(field: &Field<'_>) -> Result<Option<VlanTag>, FieldError> {
    match field.number::<u16>()? {
        None | Some(0) => Ok(None),
        Some(tag) => VlanTag::new(tag).map(Some).map_err(|_| field.unexpected("a VLAN tag (0-4094)")),
    }
}

/// One family: absent where the VNIC has no address of it, even if its subnet has a block.
fn addressing(entry: &Field<'_>, family: Family) -> Result<Option<SubnetAddressing>, FieldError> {
    let addresses = match family {
        Family::Ipv4 => vec![entry.member("privateIp")?],
        Family::Ipv6 => entry.member("ipv6Addresses")?.elements()?,
    };
    let (expected, subnet, router) = match family {
        Family::Ipv4 => ("an IPv4 address", "subnetCidrBlock", "virtualRouterIp"),
        Family::Ipv6 => ("an IPv6 address", "ipv6SubnetCidrBlock", "ipv6VirtualRouterIp"),
    };
    let ip = |field: &Field<'_>| match field.parsed::<IpAddr>(expected)? {
        Some(ip) if Family::of(ip) != family => Err(field.unexpected(expected)),
        other => Ok(other),
    };
    let (listed, refused): (Vec<_>, Vec<_>) =
        addresses.iter().filter_map(|it| ip(it).transpose()).partition(Result::is_ok);
    let mut listed = listed.into_iter().flatten();
    let Some(address) = listed.next() else {
        return refused.into_iter().next().transpose().map(|_| None);
    };
    let (subnet, router) = (entry.member(subnet)?, entry.member(router)?);
    Ok(Some(SubnetAddressing {
        subnet: subnet.parsed("a CIDR block")?.ok_or_else(|| subnet.missing())?,
        router: ip(&router)?.ok_or_else(|| router.missing())?,
        address,
        // An entry that is not an address, such as a block, does not make the VNIC unusable.
        others: listed.collect(),
    }))
}
