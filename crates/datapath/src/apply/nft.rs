//! Our nft rules in the kernel's terms: a table for IPv4 and IPv6, and one for ARP, which the first cannot see.

use netlink::nft::{Chain, ChainKind, Hook, Rule, Table, TableFamily};
use vcn::NFT_TABLE;

use crate::NftRule;
use crate::object::NftChain;

/// The whole tables. Rules known only by their text are left out: no plan contains them.
pub(super) fn tables(rules: &[NftRule]) -> [Table; 2] {
    let of = |chain: NftChain| {
        let known = rules.iter().filter_map(|rule| rule.content.as_ref().map(|content| (rule, content)));
        known
            .filter(|(_, (asked, _))| *asked == chain)
            .map(|(rule, (_, expressions))| Rule::new(rule.text(), expressions.clone()))
            .collect()
    };
    let chain =
        |name: &str, hook, kind, (priority, rules)| Chain { name: name.into(), hook, kind, priority, rules: of(rules) };
    let table = |family, chains| Table { family, name: NFT_TABLE.to_owned(), chains };
    let inet = table(
        TableFamily::Inet,
        vec![
            // First of all, where others have their raw tables: nothing is looked up for what is dropped here.
            chain("source", Hook::Prerouting, ChainKind::Filter, (-300, NftChain::Source)),
            // Around -100, where destinations are translated: kube-proxy's (nftables) own chains are at -110 and -100.
            chain("way-in", Hook::Prerouting, ChainKind::Filter, (-110, NftChain::WayIn)),
            chain("way-back", Hook::Prerouting, ChainKind::Filter, (-90, NftChain::WayBack)),
            // Not on the way out, where what IPVS translates passes too, whose translation is not visible.
            chain("forward", Hook::Forward, ChainKind::Filter, (0, NftChain::Forward)),
            // The usual places: 0 is where filters sit, 100 where sources are translated. Not where packets are forwarded, for
            // what IPVS translates is not: it comes in, and goes out.
            chain("way-out", Hook::Postrouting, ChainKind::Filter, (0, NftChain::WayOut)),
            chain("postrouting", Hook::Postrouting, ChainKind::Nat, (100, NftChain::Postrouting)),
        ],
    );
    [inet, table(TableFamily::Arp, vec![chain("input", Hook::Input, ChainKind::Filter, (0, NftChain::Arp))])]
}
