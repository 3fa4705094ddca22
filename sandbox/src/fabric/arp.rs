//! ARP as in a VCN: the fabric answers for all VNICs, and lets none answer for another.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use smoltcp::wire::{ArpOperation, ArpPacket, ArpRepr};
use vcn::MacAddr;

use super::frame::{self, Pair};
use super::{DropReason, Fabric, Sender, Verdict, VnicPort};

impl Fabric {
    pub(super) fn arp(&mut self, now: Duration, Sender { port, vnic }: Sender<'_>, payload: &[u8]) -> Verdict {
        let malformed = |_| DropReason::Malformed("ARP packet");
        let packet = ArpPacket::new_checked(payload).map_err(malformed)?;
        let ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: sender_mac,
            source_protocol_addr: sender,
            target_protocol_addr: target,
            ..
        } = ArpRepr::parse(&packet).map_err(malformed)?
        else {
            return Err(DropReason::Malformed("ARP packet"));
        };
        if sender_mac.0 != vnic.mac.0 {
            return Err(DropReason::ForeignMac(MacAddr(sender_mac.0)));
        }
        // A probe (RFC 5227) claims no address yet.
        if !sender.is_unspecified() && !vnic.owns(sender.into()) {
            return Err(DropReason::ForeignNeighbour(sender.into()));
        }
        if operation != ArpOperation::Request || sender == target {
            // An answer, or a gratuitous announcement: both show that the sender's address is there.
            return Ok(self.answered(now, port, sender.into()));
        }
        let holder = self.arp_target(vnic, target)?;
        let Some(mac) = holder else { return Ok(Vec::new()) };
        Ok(vec![(port, frame::arp_reply(Pair { from: (mac, target), to: (vnic.mac, sender) }))])
    }

    /// The MAC to answer with; `None` where silence is right (a probe for the VNIC's own address).
    fn arp_target(&self, vnic: &VnicPort, target: Ipv4Addr) -> Result<Option<MacAddr>, DropReason> {
        let address = IpAddr::V4(target);
        if vnic.subnet.router_v4() == Some(target) {
            return Ok(Some(vnic.subnet.router_mac));
        }
        if target.is_link_local() {
            return if vnic.primary {
                Ok(Some(vnic.subnet.router_mac))
            } else {
                Err(DropReason::MetadataFromSecondary)
            };
        }
        if vnic.owns(address) {
            return Ok(None);
        }
        let neighbour = self.holder(address).filter(|(_, holder)| holder.subnet.id == vnic.subnet.id);
        neighbour.map(|(_, holder)| Some(holder.mac)).ok_or(DropReason::NoHolder(address))
    }
}
