//! The kubelet's eviction threshold: from its configuration where that can be read, otherwise from the Node.

use super::cgroup::Cgroups;
use super::reserved::MIB;
use super::{CGROUPS, FIVE_MINUTES};
use crate::collector::{Area, Collector, Gap, Kind, Sample, Signal, Unit};
use crate::facts::mebibytes;
use crate::host::Host;

pub(super) const KIND: Kind = Kind {
    area: Area::Host,
    name: "kubelet_config",
    every: FIVE_MINUTES,
    privilege: CGROUPS,
    make: || Box::new(KubeletConfig),
    signals: &[Signal {
        name: "eviction_memory",
        unit: Unit::Mebibytes,
        source: "the memory bound of the pods' cgroup minus the Node's allocatable memory, which the controller reports; where mounted, `/var/lib/kubelet/config.{yaml,json}`, `/etc/kubernetes/kubelet-config.json`: evictionHard",
        why: "The kubelet measures every 10 s; with a small threshold the kernel kills processes before the kubelet evicts a pod.",
        remedy: "Set `evictionHard` with `memory.available` of 100Mi or more in the kubelet's configuration.",
    }],
};

const FILES: &[&str] =
    &["var/lib/kubelet/config.yaml", "var/lib/kubelet/config.json", "etc/kubernetes/kubelet-config.json"];

/// What the pods' cgroup may use and the Node does not offer: the kubelet subtracts the threshold from Allocatable only.
fn by_node(host: &Host) -> Result<(f64, String), Gap> {
    let allocatable = host.facts.allocatable_memory.ok_or_else(|| {
        Gap::absent(
            "not granted: the kubelet's configuration; and no controller has reported the Node (docs/signals.md)",
        )
    })?;
    let bound = Cgroups::of(host)?.pods_memory()?;
    // Version 1 has a bound beyond all memory where none is set.
    let total = host.total_memory()?;
    let bound = bound
        .filter(|bound| *bound <= total * MIB)
        .ok_or_else(|| Gap::absent("the kubelet does not bound the memory of all pods"))?;
    let (bound, allocatable) = (bound / MIB, allocatable as f64 / MIB);
    let detail = format!("pods may use {bound:.0} MiB, of which {allocatable:.0} MiB are allocatable");
    // The kubelet restarted with another bound, and the Node's amount is older; or a webhook raised it.
    if allocatable > bound + 1.0 {
        return Err(Gap::unknown(detail));
    }
    // The kernel rounds the bound down to pages.
    Ok(((bound - allocatable).round().max(0.0), detail))
}

/// What the kubelet uses unless it is set.
const DEFAULT: f64 = 100.0;

struct KubeletConfig;

impl Collector for KubeletConfig {
    fn collect(&mut self, host: &Host, sample: &mut Sample) -> Result<(), Gap> {
        let Some(file) = FILES.iter().find(|file| host.has(file)) else {
            let (threshold, detail) = by_node(host)?;
            sample.value("eviction_memory", threshold, detail);
            return Ok(());
        };
        let text = host.file(file)?;
        let Some(amount) = hard_memory(&text) else {
            sample.value("eviction_memory", DEFAULT, "the kubelet's default");
            return Ok(());
        };
        let mebibytes = match amount.strip_suffix('%') {
            Some(share) => {
                share.parse::<f64>().ok().map(|share| share / 100.0).zip(host.total_memory().ok()).map(|(a, b)| a * b)
            }
            None => mebibytes(&amount),
        };
        let mebibytes = mebibytes.ok_or_else(|| Gap::unknown(format!("{file}: memory.available is {amount}")))?;
        sample.value("eviction_memory", mebibytes, format!("memory.available is {amount}"));
        Ok(())
    }
}

/// `memory.available` of `evictionHard`, in JSON or in YAML: there a block below a key of the first level, or in braces.
fn hard_memory(text: &str) -> Option<String> {
    if let Ok(json) = serde_json::from_str::<serde_json::Value>(text) {
        return Some(json.get("evictionHard")?.get("memory.available")?.as_str()?.to_owned());
    }
    let mut lines = text.lines().skip_while(|line| !line.starts_with("evictionHard:"));
    let inline = lines.next()?.strip_prefix("evictionHard:")?;
    let block = lines.take_while(|line| line.is_empty() || line.starts_with([' ', '#']));
    let entries = std::iter::once(inline).chain(block).flat_map(|line| line.split(['{', ',', '}']));
    let plain = |word: &str| word.trim().trim_matches(['"', '\'']).to_owned();
    let amount = |entry: &str| {
        let (key, amount) = entry.split_once(':')?;
        let amount = amount.split_once(" #").map_or(amount, |(amount, _)| amount);
        (plain(key) == "memory.available").then(|| plain(amount))
    };
    entries.into_iter().find_map(amount)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hard_threshold_is_found_and_the_soft_one_ignored() {
        for (text, expected) in [
            ("evictionHard:\n  nodefs.available: 10%\n  memory.available: \"10Mi\" # low\nx: 1\n", Some("10Mi")),
            ("evictionHard:\n  nodefs.available: 10%\nevictionSoft:\n  memory.available: 500Mi\n", None),
            (
                "evictionSoft:\n  memory.available: 500Mi\nevictionHard: {nodefs.available: 5%, 'memory.available': 5%}\n",
                Some("5%"),
            ),
            ("evictionHard:\n# low\n\n  memory.available: 1Gi", Some("1Gi")),
            ("evictionHardMax: 3\n", None),
            (
                r#"{"evictionSoft": {"memory.available": "1Gi"}, "evictionHard": {"memory.available": "20Mi"}}"#,
                Some("20Mi"),
            ),
            (r#"{"evictionHard": {"imagefs.available": "9%"}, "evictionSoft": {"memory.available": "1Gi"}}"#, None),
        ] {
            assert_eq!(hard_memory(text).as_deref(), expected, "{text}");
        }
    }
}
