//! The rules of our nft tables. A rule is recognized by its text, which it carries in the kernel as its comment,
//! so `nft list table inet vcn-native` reads like the list of `host::nft`; what is about ARP is in `table arp vcn-native`.

use netlink::nft::Expression;

/// When a rule is asked: its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NftChain {
    Source,
    WayIn,
    WayBack,
    Forward,
    WayOut,
    Postrouting,
    Arp,
}

/// One rule. Two are equal if their texts are.
#[derive(Clone, Debug)]
pub struct NftRule {
    text: String,
    /// What it does; nothing of an observed rule, which no plan makes.
    pub(crate) content: Option<(NftChain, Vec<Expression>)>,
}

impl NftRule {
    /// Our rule.
    pub(crate) fn new(chain: NftChain, text: String, expressions: Vec<Expression>) -> Self {
        Self { text, content: Some((chain, expressions)) }
    }

    /// A rule as found.
    pub(crate) const fn found(text: String) -> Self {
        Self { text, content: None }
    }

    /// Its text, the comment in the kernel.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl PartialEq for NftRule {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for NftRule {}
