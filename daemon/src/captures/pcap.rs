//! The file format of packets: pcap with "cooked" link headers of version 2, as `tcpdump -i any` writes it. Each packet has the index of
//! its link and its direction.

use std::io::{self, Write};

use netlink::CapturedPacket;

/// The magic number of times in microseconds.
const MAGIC: u32 = 0xa1b2_c3d4;
/// LINKTYPE_LINUX_SLL2 of tcpdump.org: the "cooked" link header of version 2.
const LINK_TYPE: u32 = 276;
/// The longest packet that a reader must expect, in bytes.
const PACKET_MAX: u32 = 256 << 10;
/// The bytes before each packet: the record's head, and the link header.
const RECORD_HEAD: usize = 16;
const LINK_HEADER: usize = 20;
/// The bytes before all packets.
const FILE_HEAD: usize = 24;

/// Writes packets, up to a size.
pub(super) struct PacketFile<W> {
    to: W,
    bytes: u64,
    bytes_max: u64,
}

impl<W: Write> PacketFile<W> {
    pub(super) fn create(mut to: W, bytes_max: u64) -> io::Result<Self> {
        let mut head = Vec::with_capacity(FILE_HEAD);
        head.extend(MAGIC.to_le_bytes());
        head.extend([2_u16, 4].map(u16::to_le_bytes).concat());
        head.extend([0, 0, PACKET_MAX, LINK_TYPE].map(u32::to_le_bytes).concat());
        to.write_all(&head)?;
        Ok(Self { to, bytes: head.len() as u64, bytes_max })
    }

    /// Appends a packet, of which `bytes` are kept. Returns whether there was room.
    pub(super) fn append(&mut self, packet: &CapturedPacket<'_>, bytes: &[u8]) -> io::Result<bool> {
        let record = (RECORD_HEAD + LINK_HEADER + bytes.len()) as u64;
        if self.bytes + record > self.bytes_max {
            return Ok(false);
        }
        let mut head = [0; RECORD_HEAD + LINK_HEADER];
        let link_header = u32::try_from(LINK_HEADER).unwrap_or(0);
        let kept = u32::try_from(bytes.len()).unwrap_or(PACKET_MAX);
        let seconds = u32::try_from(packet.time.as_secs()).unwrap_or(u32::MAX);
        let parts: [&[u8]; 11] = [
            &seconds.to_le_bytes(),
            &packet.time.subsec_micros().to_le_bytes(),
            &(kept + link_header).to_le_bytes(),
            &packet.length.saturating_add(link_header).to_le_bytes(),
            &packet.protocol.to_be_bytes(),
            &[0, 0],
            &packet.index.to_be_bytes(),
            &packet.hardware.to_be_bytes(),
            &[packet.direction],
            &[packet.sender_length],
            &packet.sender,
        ];
        for (to, byte) in head.iter_mut().zip(parts.into_iter().flatten()) {
            *to = *byte;
        }
        self.to.write_all(&head)?;
        self.to.write_all(bytes)?;
        self.bytes += record;
        Ok(true)
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// That tcpdump reads it is shown in `daemon/tests/cluster/captures.rs`.
    #[test]
    fn file_ends_before_its_bound() {
        let packet = CapturedPacket {
            time: Duration::from_micros(5_000_007),
            index: 3,
            hardware: 1,
            direction: 4,
            sender: [1, 2, 3, 4, 5, 6, 0, 0],
            sender_length: 6,
            protocol: 0x0800,
            length: 1500,
            bytes: &[7; 100],
        };
        let mut written = Vec::new();
        let mut file = PacketFile::create(&mut written, 24 + 2 * (36 + 40)).unwrap();
        let appended = [40, 41, 40, 1].map(|length| file.append(&packet, &packet.bytes[..length]).unwrap());
        assert_eq!((appended, file.bytes()), ([true, false, true, false], 24 + 2 * 76));
        file.finish().unwrap();
        assert_eq!(written.len(), 24 + 2 * 76);
        let expected = [
            vec![5, 0, 0, 0, 7, 0, 0, 0, 60, 0, 0, 0, 0xf0, 5, 0, 0],
            vec![8, 0, 0, 0, 0, 0, 0, 3, 0, 1, 4, 6, 1, 2, 3, 4, 5, 6, 0, 0],
        ]
        .concat();
        assert_eq!(written[24..60], expected);
    }
}
