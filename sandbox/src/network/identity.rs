//! Names that are the same in every run: OCIDs, Ethernet addresses, tags, link names. Numbers count from one.

use vcn::{IfName, MacAddr, MachineKind, Ocid};

use crate::error::{Error, Result};

/// The tenancy of everything.
pub(crate) const TENANCY: &str = "ocid1.tenancy.oc1..aaaaaaaasandbox";

/// The compartment of everything: the root of a tenancy of the first years, whose OCID is of the older form.
pub(crate) const COMPARTMENT: &str = "ocidv1:tenancy:oc1:phx:1460406592660:aaaaaaaasandbox";

/// The same, as an OCID.
pub(crate) fn compartment() -> Result<Ocid> {
    COMPARTMENT.parse().map_err(|error: vcn::OcidError| Error::Invalid(error.to_string()))
}

/// An OCID; unique ids look as OCI's do: a prefix and lower-case letters and digits.
pub(crate) fn ocid(kind: &str, number: u32) -> Result<Ocid> {
    format!("ocid1.{kind}.oc1.iad.abuwcljtsandbox{number:08}")
        .parse()
        .map_err(|error: vcn::OcidError| Error::Invalid(error.to_string()))
}

/// A VNIC's Ethernet address, in the range that OCI uses.
pub(crate) const fn vnic_mac(number: u32) -> MacAddr {
    let [_, a, b, c] = number.to_be_bytes();
    MacAddr([0x02, 0x00, 0x17, a, b, c])
}

/// A virtual router's Ethernet address.
pub(crate) const fn router_mac(number: u32) -> MacAddr {
    let [_, a, b, c] = number.to_be_bytes();
    MacAddr([0x00, 0x00, 0x17, a, b, c])
}

/// The tag in a virtual machine's metadata: a number without a meaning.
pub(crate) fn meaningless_tag(number: u32) -> u16 {
    u16::try_from(1000 + number % 3000).unwrap_or(1000)
}

/// The name of a node's n-th link: `ens3`, `ens5`, `ens6`, … on a virtual machine, `ens300f0`, … on bare metal.
pub(crate) fn link_name(kind: MachineKind, number: u32) -> Result<IfName> {
    let name = match (kind, number) {
        (MachineKind::Virtual, 0) => "ens3".to_owned(),
        (MachineKind::Virtual, number) => format!("ens{}", number.saturating_add(4)),
        (MachineKind::BareMetal, number) => format!("ens300f{number}"),
    };
    IfName::new(name).map_err(|error| Error::Invalid(error.to_string()))
}
