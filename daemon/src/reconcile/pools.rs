//! The stage that publishes the addresses that pods may get, in pools.json.

use std::path::Path;

use ipam::{BootTime, Pools};
use resident::logging::chain;

use super::context::Context;
use super::{StageReport, sources};
use crate::decide::offers;
use crate::decide::pools::{self, ConfiguredVnics};
use crate::decide::usage::{Usage, size};
use crate::facts::condition::{Condition, Reason};
use crate::facts::reconcile_report::Changed;

pub(super) fn publish(context: &Context<'_>, stages: &mut StageReport) {
    let configured = stages.configured.clone();
    let for_pods = configured.as_deref().filter(|_| context.is_ours()).unwrap_or_default();
    stages.conditions.extend(sources::unlisted(context.facts, for_pods, context.has_ipv6));
    let state_dir = &context.node.settings.state_dir;
    let current = match context.node.pools() {
        Ok(pools) => Some(pools),
        Err(ipam::Error::NoPools { .. }) => None,
        Err(error) => {
            // The plugins cannot use a damaged file either: it is replaced as soon as there is something to publish.
            stages.conditions.push(failed(&error, Condition::degraded));
            None
        }
    };
    stages.offers_addresses = context.is_ours() && current.as_ref().is_some_and(Usage::offers_any);
    // Nothing is known of the host: what was published is as good as it was.
    let Some(configured) = &configured else { return };
    let nics = context.node.settings.nics();
    let hosted = ConfiguredVnics { vnics: configured, ipv6: context.has_ipv6, nics: &nics };
    let now = BootTime::now().unwrap_or_default();
    let offers = offers::offers(context.facts, &context.requests, hosted, &context.desired.exclusive, current.as_ref());
    // No cluster whose pods get VCN addresses, as far as is known.
    let is_alone = !context.is_ours() || current.is_none() && context.facts.npn().is_none();
    let pools = if is_alone {
        offers::alone(offers, current.as_ref(), &context.node.boot, now)
    } else {
        let moment = pools::WriteTime { boot: &context.node.boot, now };
        let known = &stages.conditions;
        let (mut pools, conditions) = pools::next(context.facts, hosted, current.as_ref(), moment, known);
        stages.conditions.extend(conditions);
        pools.vnics.extend(offers);
        Some(pools)
    };
    let Some(pools) = pools.filter(|pools| current.as_ref() != Some(pools)) else { return };
    let written = if context.is_preview() { Ok(true) } else { pools.write(state_dir) };
    match written {
        Ok(_) => {
            stages.changes.push(published(state_dir, &pools));
            stages.offers_addresses = context.is_ours() && Usage::offers_any(&pools);
        }
        Err(error) => {
            let severity = if stages.offers_addresses { Condition::degraded } else { Condition::blocking };
            stages.conditions.push(failed(&error, severity));
        }
    }
}

fn failed(error: &ipam::Error, severity: fn(Reason, String) -> Condition) -> Condition {
    severity(Reason::StateFailed, chain(error)).about("pools.json")
}

fn published(state_dir: &Path, pools: &Pools) -> Changed {
    let addresses = pools.vnics.iter().flat_map(|vnic| vnic.families.iter()).map(|(_, pool)| size(pool));
    let addresses = addresses.fold(0, u64::saturating_add);
    let path = state_dir.join("pools.json");
    let mut text = format!("write {}: {} VNIC(s), {addresses} address(es)", path.display(), pools.vnics.len());
    if let Some(reason) = &pools.reason {
        text.push_str("; ");
        text.push_str(reason);
    }
    Changed::new("pools", text)
}
