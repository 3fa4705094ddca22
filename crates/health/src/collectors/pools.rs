//! Free addresses for pods.

use crate::collector::{AGENT_REPORT, Kind, MINUTE, Sample};
use crate::facts::PoolFacts;
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};

pub(super) const KIND: Kind = Kind {
    area: Area::Network,
    name: "pools",
    every: MINUTE,
    privilege: AGENT_REPORT,
    collect,
    signals: &[
        Signal {
            name: "pool_free",
            unit: Unit::Count,
            source: "the agent's pools: free addresses of the family with the fewest",
            why: "Without a free address no new pod starts on this node.",
            remedy: "Delete pods, lower the kubelet's maxPods, or give the node pool more addresses per node.",
        },
        Signal {
            name: "pool_cooldown",
            unit: Unit::Percent,
            source: "the agent's pools: addresses that were freed a moment ago",
            why: "Pods that come and go faster than addresses cool down reuse addresses that other hosts still remember.",
            remedy: "Slow down the job that restarts its pods, or give the node pool more addresses per node.",
        },
        Signal {
            name: "shared_vnic_free",
            unit: Unit::Count,
            source: "the agent's pools: free addresses of the shared VNIC and family with the fewest",
            why: "Without a free address, a new pod that requests this VNIC cannot start on this node.",
            remedy: "Delete pods that use the VNIC, or raise ipv4Count or ipv6Count of its VnicAttachment or profile.",
        },
    ],
};

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let pools = &host.facts.network()?.pools;
    sample.result("shared_vnic_free", shared(pools));
    let pools: Vec<&PoolFacts> = pools.iter().filter(|pool| pool.shared.is_none()).collect();
    let mut families: Vec<&str> = pools.iter().map(|pool| pool.family.as_str()).collect();
    families.sort_unstable();
    families.dedup();
    let sum = |family: &str, part: fn(&PoolFacts) -> u64| -> f64 {
        let of_it = pools.iter().filter(|pool| pool.family == family);
        of_it.map(|pool| part(pool) as f64).sum()
    };
    // An address that cools down is given out when no other is left.
    let usable = |family: &str| sum(family, |pool| pool.free) + sum(family, |pool| pool.cooling);
    let Some(family) = families.into_iter().min_by(|a, b| usable(a).total_cmp(&usable(b))) else {
        return Err(Gap::absent("this node has no pool of pod addresses"));
    };
    let (total, cooling) = (sum(family, |pool| pool.total), sum(family, |pool| pool.cooling));
    let in_use = sum(family, |pool| pool.in_use);
    let detail = format!("{family}: {in_use} of {total} in use, {cooling} cooling down");
    sample.value("pool_free", usable(family), detail.clone());
    sample.value("pool_cooldown", 100.0 * cooling / total.max(1.0), detail);
    Ok(())
}

/// The free addresses of the shared VNIC that has the fewest. A family without addresses is not offered.
fn shared(pools: &[PoolFacts]) -> Result<(f64, String), Gap> {
    let usable = |pool: &PoolFacts| pool.free + pool.cooling;
    let offered = pools.iter().filter(|pool| pool.total > 0);
    let named = offered.filter_map(|pool| Some((usable(pool), pool.shared.as_ref()?, pool)));
    let fewest = named.min_by_key(|(usable, ..)| *usable);
    let (usable, name, pool) = fewest.ok_or_else(|| Gap::absent("this node has no shared VNIC"))?;
    let PoolFacts { link, family, in_use, total, .. } = pool;
    Ok((usable as f64, format!("{name} ({link}), {family}: {in_use} of {total} in use")))
}
