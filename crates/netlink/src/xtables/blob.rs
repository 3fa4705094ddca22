//! A table as the kernel hands it out: entries one behind the other, jumps by their distance from the first.

use std::collections::BTreeMap;

use vcn::Family;

use super::matches;
use crate::error::Cause;
use crate::nft::Way;

const HOOKS: usize = 5;
const NF_INET_FORWARD: usize = 2;
/// Jumps within jumps.
const DEEPEST: u32 = 16;

// linux/netfilter/x_tables.h: a verdict is stored as its negative minus one.
const DROP: i32 = -1;
const ACCEPT: i32 = -2;
const RETURN: i32 = -5;
const TARGET_LEN: usize = 32;
const GOTO: u8 = 0x02;
const INVERT_IN: u8 = 0x01;
const INVERT_OUT: u8 = 0x02;
const NAME_LEN: usize = 16;

/// What is known of a table before its entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    /// Where the forward hook's chain begins and where its policy is; nothing where the table has none there.
    forward: Option<(u32, u32)>,
    /// Of the entries, in bytes.
    pub(super) size: u32,
}

/// Whether a link is the one that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meets {
    Yes,
    No,
    /// Some of those with its prefix are.
    Perhaps,
}

/// Where the parts of an entry are; they differ by the addresses' length.
struct Layout {
    /// Source, destination and their masks, which are all 0 where any will do.
    addresses: usize,
    /// The protocol, flags and inversions.
    protocol: usize,
    flags: usize,
    inversions: usize,
    /// Where the target begins and the next entry does: two numbers.
    offsets: usize,
    /// Where matches begin.
    matches: usize,
}

const IPV4: Layout = Layout { addresses: 16, protocol: 80, flags: 82, inversions: 83, offsets: 88, matches: 112 };
const IPV6: Layout = Layout { addresses: 64, protocol: 128, flags: 131, inversions: 132, offsets: 140, matches: 168 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Accept,
    Stop(&'static str),
    Return,
    Jump(u32),
    Goto(u32),
    /// The next one.
    None,
}

/// An entry that asks for nothing but links, and decides something.
#[derive(Debug)]
struct Entry<'a> {
    /// The links' names, and the masks under which they are asked for: where a packet comes from, where it goes to.
    links: [(&'a [u8], &'a [u8]); 2],
    /// Whether it is to be any link but that.
    inverted: [bool; 2],
    end: End,
}

impl Entry<'_> {
    /// Whether every packet on the way meets it. One that meets it perhaps only is taken to pass it.
    fn takes(&self, way: &Way) -> bool {
        let asked = self.links.into_iter().zip(self.inverted).zip([&way.from, &way.to]);
        asked.into_iter().all(|(((name, mask), inverted), link)| {
            matches(link, name, mask) == if inverted { Meets::No } else { Meets::Yes }
        })
    }
}

impl Header {
    /// Behind the table's name: valid hooks, entries, underflows, number of entries, size.
    pub(super) fn read(info: &[u8]) -> Result<Self, Cause> {
        let number = |at: usize| u32_at(info, at * 4);
        let at_forward = number(0)? & (1 << NF_INET_FORWARD) != 0;
        let (begin, policy) = (number(1 + NF_INET_FORWARD)?, number(1 + HOOKS + NF_INET_FORWARD)?);
        Ok(Self { forward: at_forward.then_some((begin, policy)), size: number(2 + 2 * HOOKS)? })
    }
}

/// How the forward hook's chain stops a packet on any of the ways, if it does.
pub(super) fn forward(
    table: &[u8],
    family: Family,
    header: &Header,
    ways: &[Way],
) -> Result<Option<&'static str>, Cause> {
    let Some((begin, policy)) = header.forward else { return Ok(None) };
    let layout = if family == Family::Ipv4 { IPV4 } else { IPV6 };
    let mut entries = BTreeMap::new();
    let mut at = 0;
    while (at as usize) < table.len() {
        let bytes = table.get(at as usize..).unwrap_or_default();
        let (entry, next) = entry(bytes, at, &layout)?;
        if let Some(entry) = entry {
            entries.insert(at, entry);
        }
        at = next;
    }
    Ok(ways.iter().find_map(|way| match walk(begin, &entries, way, policy, DEEPEST) {
        End::Stop(how) => Some(how),
        _ => None,
    }))
}

/// What becomes of a packet from an entry on: `Accept`, `Stop`, or at the end of its chain `None`.
fn walk(from: u32, entries: &BTreeMap<u32, Entry<'_>>, way: &Way, policy: u32, depth: u32) -> End {
    for (at, entry) in entries.range(from..).filter(|(_, entry)| entry.takes(way)) {
        match entry.end {
            End::Stop(_) if *at == policy => return End::Stop("policy drop"),
            End::Accept | End::Stop(_) => return entry.end,
            End::Return => return End::None,
            End::None => {}
            End::Jump(to) | End::Goto(to) => {
                let within = if depth == 0 { End::None } else { walk(to, entries, way, policy, depth - 1) };
                if within != End::None || matches!(entry.end, End::Goto(_)) {
                    return within;
                }
            }
        }
    }
    End::None
}

/// An entry, where it can be told by links and decides something, and where the next one is.
fn entry<'a>(bytes: &'a [u8], at: u32, layout: &Layout) -> Result<(Option<Entry<'a>>, u32), Cause> {
    let target = usize::from(u16_at(bytes, layout.offsets)?);
    let length = u32::from(u16_at(bytes, layout.offsets + 2)?);
    if length == 0 || target < layout.matches {
        return Err(Cause::Malformed("an entry without an end"));
    }
    let next = at.checked_add(length).ok_or(Cause::Malformed("an entry's length"))?;
    let byte = |at: usize| bytes.get(at).copied().ok_or(SHORT);
    let part = |at: usize, length: usize| bytes.get(at..at + length).ok_or(SHORT);
    let (flags, inversions) = (byte(layout.flags)?, byte(layout.inversions)?);
    let link = |index: usize| part(layout.addresses + index * NAME_LEN, NAME_LEN);
    let links = [(link(0)?, link(2)?), (link(1)?, link(3)?)];
    let narrow = part(0, layout.addresses)?.iter().any(|byte| *byte != 0)
        || u16_at(bytes, layout.protocol)? != 0
        || flags & !GOTO != 0
        || inversions & !(INVERT_IN | INVERT_OUT) != 0
        || target != layout.matches;
    let target = bytes.get(target..usize::try_from(length).unwrap_or(usize::MAX)).ok_or(SHORT)?;
    let end = end(target, next, flags)?;
    let inverted = [inversions & INVERT_IN != 0, inversions & INVERT_OUT != 0];
    Ok(((!narrow && end != End::None).then_some(Entry { links, inverted, end }), next))
}

/// A target: its length, its name, a revision, its data. The standard one has no name, and a verdict.
fn end(target: &[u8], next: u32, flags: u8) -> Result<End, Cause> {
    let name = target.get(2..TARGET_LEN - 1).ok_or(SHORT)?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(match name {
        b"" => match i32::from_ne_bytes(u32_at(target, TARGET_LEN)?.to_ne_bytes()) {
            DROP => End::Stop("drop"),
            ACCEPT => End::Accept,
            RETURN => End::Return,
            verdict => match u32::try_from(verdict) {
                // A rule that only counts.
                Ok(to) if to == next => End::None,
                Ok(to) if flags & GOTO != 0 => End::Goto(to),
                Ok(to) => End::Jump(to),
                // To a queue.
                Err(_) => End::None,
            },
        },
        b"REJECT" => End::Stop("reject"),
        _ => End::None,
    })
}

const SHORT: Cause = Cause::Malformed("a short table entry");

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Cause> {
    let bytes = bytes.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).ok_or(SHORT)?;
    Ok(u16::from_ne_bytes(bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Cause> {
    let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).ok_or(SHORT)?;
    Ok(u32::from_ne_bytes(bytes))
}
