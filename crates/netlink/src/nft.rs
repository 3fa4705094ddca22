//! nf_tables: our tables, replaced as a whole in one transaction, so no packet ever meets half of them. No `nft`
//! binary is needed, yet `nft list ruleset` shows them as if one had made them, comments included.
//!
//! ```text
//!   Table ─▶ Chain (hook, priority) ─▶ Rule (expressions, comment) ──replace_tables──▶ kernel
//!   comments of its rules ◀──comments()── kernel: what is there, to compare
//! ```

use vcn::{IfName, words};

pub(crate) mod chain;
mod encode;
mod expression;
mod forward_filter;
pub(crate) mod observed;
mod socket;
mod watch;

pub use expression::{Direction, Expression, LinkMatch, Protocol, Rate};
pub use forward_filter::{BlockingChain, ForwardPath};
pub use socket::NftSocket;
pub use watch::Watch;

/// The longest rule comment, in bytes (the `nft` program's limit).
pub const COMMENT_MAX: usize = 127;

/// An nftables table with its chains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Which packets it sees.
    pub family: TableFamily,
    /// Its name, which a table of another family may have too.
    pub name: String,
    /// The chains, in the order in which they are made.
    pub chains: Vec<Chain>,
}

/// Which packets a table sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableFamily {
    /// Packets of IPv4 and of IPv6.
    Inet,
    /// ARP, which no table of another family sees. Its hooks are [`Hook::Input`] and [`Hook::Output`].
    Arp,
}

/// A base chain: the kernel calls it at a hook. What none of its rules decides is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The name of the chain.
    pub name: String,
    /// Where in a packet's way it is called.
    pub hook: Hook,
    /// What its rules may do.
    pub kind: ChainKind,
    /// When, among the chains of the hook: lower is earlier. −150 mangle, −100 dstnat, 0 filter, 100 srcnat.
    pub priority: i32,
    /// Its rules, in order.
    pub rules: Vec<Rule>,
}

/// A rule: when every match holds, every statement is done, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Matches and statements, in their order.
    pub expressions: Vec<Expression>,
    /// What it is for, for people and for comparison.
    pub comment: String,
}

impl Rule {
    /// A rule with its comment.
    pub fn new(comment: impl Into<String>, expressions: impl Into<Vec<Expression>>) -> Self {
        Self { expressions: expressions.into(), comment: comment.into() }
    }
}

/// Where in a packet's way a chain is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    /// Everything that comes in, before routing.
    Prerouting,
    /// Packets to this host.
    Input,
    /// Packets that pass through this host.
    Forward,
    /// Packets from this host.
    Output,
    /// Everything that goes out, after routing.
    Postrouting,
}

/// What a chain's rules may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChainKind {
    /// A chain that accepts, drops or marks packets.
    Filter,
    /// Translate addresses; called for the first packet of a connection.
    Nat,
}

impl TableFamily {
    /// The kernel's number of the family (linux/netfilter.h): NFPROTO_INET or NFPROTO_ARP.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Inet => 1,
            Self::Arp => 3,
        }
    }

    /// The hooks of its tables; their positions are the kernel's numbers for them.
    const fn hooks(self) -> &'static [Hook] {
        match self {
            Self::Inet => &[Hook::Prerouting, Hook::Input, Hook::Forward, Hook::Output, Hook::Postrouting],
            Self::Arp => &[Hook::Input, Hook::Output],
        }
    }
}

words!(TableFamily: Inet = "inet", Arp = "arp");
words!(ChainKind: Filter = "filter", Nat = "nat");

impl Hook {
    fn number(self, family: TableFamily) -> Option<u32> {
        let position = family.hooks().iter().position(|hook| *hook == self)?;
        u32::try_from(position).ok()
    }
}

impl From<IfName> for LinkMatch {
    fn from(name: IfName) -> Self {
        Self::Exact(name)
    }
}
