//! nf_tables: one table of ours, replaced as a whole in one transaction, so no packet ever meets half of it. No `nft`
//! binary is needed, yet `nft list ruleset` shows the table as if one had made it, comments included.
//!
//! ```text
//!   Table ─▶ Chain (hook, priority) ─▶ Rule (expressions, comment) ──replace_table──▶ kernel
//!   TableState ◀──table()── kernel: what is there, to compare and to report
//! ```

use vcn::IfName;

mod barrier;
mod encode;
mod expression;
pub(crate) mod observed;
mod ruleset;
mod socket;
mod watch;

pub use barrier::{Barrier, Way};
pub use expression::{CtStates, Direction, Expression, LinkMatch, Masked, Protocol};
pub use observed::{ChainState, RuleState, TableState};
pub use ruleset::{Longest, Ruleset};
pub use socket::Socket;
pub use watch::Watch;

/// The longest rule comment, in bytes (the `nft` program's limit).
pub const COMMENT_MAX: usize = 127;

/// A table of family `inet`: both IP families.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Its chains.
    pub chains: Vec<Chain>,
}

/// A base chain: the kernel calls it at a hook. What none of its rules decides is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
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
    /// Matches and statements.
    pub expressions: Vec<Expression>,
    /// What it is for, for people and for comparison.
    pub comment: String,
}

impl Rule {
    /// A rule with its comment.
    #[must_use]
    pub fn new(comment: impl Into<String>, expressions: impl Into<Vec<Expression>>) -> Self {
        Self { expressions: expressions.into(), comment: comment.into() }
    }
}

/// Where in a packet's way a chain is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    /// Everything that comes in, before routing.
    Prerouting,
    /// To this host.
    Input,
    /// Through this host.
    Forward,
    /// From this host.
    Output,
    /// Everything that goes out, after routing.
    Postrouting,
}

/// What a chain's rules may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChainKind {
    /// Accept, drop, mark.
    Filter,
    /// Translate addresses; called for the first packet of a connection.
    Nat,
    /// As filter; a changed mark is routed again. At [`Hook::Output`] only.
    Route,
}

impl Hook {
    const fn number(self) -> u32 {
        match self {
            Self::Prerouting => 0,
            Self::Input => 1,
            Self::Forward => 2,
            Self::Output => 3,
            Self::Postrouting => 4,
        }
    }

    fn of_number(number: u32) -> Option<Self> {
        [Self::Prerouting, Self::Input, Self::Forward, Self::Output, Self::Postrouting]
            .into_iter()
            .find(|hook| hook.number() == number)
    }
}

impl ChainKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
            Self::Route => "route",
        }
    }

    fn of_name(name: &str) -> Option<Self> {
        [Self::Filter, Self::Nat, Self::Route].into_iter().find(|kind| kind.name() == name)
    }
}

impl From<IfName> for LinkMatch {
    fn from(name: IfName) -> Self {
        Self::Exact(name)
    }
}
