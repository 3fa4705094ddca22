//! The program that the kernel runs on each packet before it queues it (classic BPF): it passes the packets between two
//! addresses and the ICMP errors about those of the first address.

use std::net::IpAddr;

use libc::sock_filter;
use libc::{BPF_ABS, BPF_ALU, BPF_B, BPF_IMM, BPF_IND, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_LDX, BPF_MSH, BPF_RET};
use libc::{BPF_RSH, BPF_W};

/// The bytes of an ICMP error before the packet that it is about.
const ICMP_HEADER: u32 = 8;
const WHOLE_PACKET: u32 = u32::MAX;

/// Loads a number from a packet and compares it.
#[derive(Clone, Copy, Debug)]
struct Test {
    load: u32,
    offset: u32,
    value: u32,
}

/// The program for two addresses of one family. Offsets are from the IP header on.
pub(super) fn between(source: IpAddr, target: IpAddr) -> Vec<sock_filter> {
    // The version, the offsets of addresses and protocol, ICMP's number, and the length of the header into register X.
    let (version, from, to, protocol, icmp, header) = match source {
        IpAddr::V4(_) => (4, 12, 16, 9, libc::IPPROTO_ICMP, statement(BPF_LDX | BPF_B | BPF_MSH, 0)),
        IpAddr::V6(_) => (6, 8, 24, 6, libc::IPPROTO_ICMPV6, statement(BPF_LDX | BPF_IMM, 40)),
    };
    let pair = |mode, start, one, other| [is_at(mode, start + from, one), is_at(mode, start + to, other)].concat();
    let is_icmp = Test { load: BPF_LD | BPF_B | BPF_ABS, offset: protocol, value: icmp.unsigned_abs() };
    let rules = [
        pair(BPF_ABS, 0, source, target),
        pair(BPF_ABS, 0, target, source),
        [vec![is_icmp], pair(BPF_IND, ICMP_HEADER, source, target)].concat(),
    ];
    let mut program = vec![
        statement(BPF_LD | BPF_B | BPF_ABS, 0),
        statement(BPF_ALU | BPF_RSH | BPF_K, 4),
        if_equal(version, 1, 0),
        statement(BPF_RET | BPF_K, 0),
        header,
    ];
    for rule in rules {
        for (number, test) in rule.iter().enumerate() {
            // Over the other tests of the rule, two instructions each, and its end.
            let to_next_rule = 2 * (rule.len() - number - 1) + 1;
            program.push(statement(test.load, test.offset));
            program.push(if_equal(test.value, 0, u8::try_from(to_next_rule).unwrap_or(u8::MAX)));
        }
        program.push(statement(BPF_RET | BPF_K, WHOLE_PACKET));
    }
    program.push(statement(BPF_RET | BPF_K, 0));
    program
}

/// Tests that an address is at an offset, word by word.
fn is_at(mode: u32, offset: u32, address: IpAddr) -> Vec<Test> {
    let words = match address {
        IpAddr::V4(address) => vec![address.to_bits()],
        IpAddr::V6(address) => address.octets().as_chunks().0.iter().map(|word| u32::from_be_bytes(*word)).collect(),
    };
    let test = |(value, offset)| Test { load: BPF_LD | BPF_W | mode, offset, value };
    words.into_iter().zip((offset..).step_by(4)).map(test).collect()
}

fn if_equal(value: u32, then: u8, otherwise: u8) -> sock_filter {
    sock_filter { jt: then, jf: otherwise, ..statement(BPF_JMP | BPF_JEQ | BPF_K, value) }
}

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: u16::try_from(code).unwrap_or(u16::MAX), jt: 0, jf: 0, k }
}
