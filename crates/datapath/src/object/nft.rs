//! Our nft tables. A rule is recognized by its text, which it carries in the kernel as its comment. So `nft list table inet
//! vcn-native` reads like the list of `host::nft`. What is about ARP is in `table arp vcn-native`.

use netlink::nft::{Chain, Table};

/// All of our tables. They are equal if the texts of their rules are.
#[derive(Clone, Debug)]
pub struct NftTables {
    pub(crate) texts: Vec<String>,
    /// Empty where they were observed: no plan makes those, and undoing a change leaves our tables.
    pub(crate) tables: Vec<Table>,
}

impl NftTables {
    pub(crate) fn new(tables: Vec<Table>) -> Self {
        let rules = tables.iter().flat_map(|table| &table.chains).flat_map(|Chain { rules, .. }| rules);
        Self { texts: rules.map(|rule| rule.comment.clone()).collect(), tables }
    }
}

impl PartialEq for NftTables {
    fn eq(&self, other: &Self) -> bool {
        self.texts == other.texts
    }
}

impl Eq for NftTables {}
