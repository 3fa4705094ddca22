//! The kubelet's eviction threshold, where its configuration can be read.

use super::FIVE_MINUTES;
use super::reserved::total_memory;
use crate::collector::{Area, Collector, Gap, Kind, Sample, Signal, Unit};
use crate::host::Host;

pub(super) const KIND: Kind = Kind {
    area: Area::Host,
    name: "kubelet_config",
    every: FIVE_MINUTES,
    privilege: "a mount that is not shipped: these folders also hold pods' secrets and the node's keys, so it is unknown",
    make: || Box::new(KubeletConfig),
    signals: &[Signal {
        name: "eviction_memory",
        unit: Unit::Mebibytes,
        source: "`/var/lib/kubelet/config.{yaml,json}`, `/etc/kubernetes/kubelet-config.json`: evictionHard",
        why: "Below about 100 MiB the kernel kills processes before the kubelet evicts a pod.",
        remedy: "Set `evictionHard` with `memory.available` of 100Mi or more in the kubelet's configuration.",
    }],
};

const FILES: &[&str] =
    &["var/lib/kubelet/config.yaml", "var/lib/kubelet/config.json", "etc/kubernetes/kubelet-config.json"];

/// What the kubelet uses unless it is set.
const DEFAULT: f64 = 100.0;

struct KubeletConfig;

impl Collector for KubeletConfig {
    fn collect(&mut self, host: &Host, sample: &mut Sample) -> Result<(), Gap> {
        let Some(file) = FILES.iter().find(|file| host.has(file)) else {
            return Err(Gap::unknown("no configuration of the kubelet is mounted: its folder holds pods' secrets"));
        };
        let text = host.file(file)?;
        let Some(amount) = hard_memory(&text) else {
            sample.value("eviction_memory", DEFAULT, "the kubelet's default");
            return Ok(());
        };
        let mebibytes = match amount.strip_suffix('%') {
            Some(share) => {
                share.parse::<f64>().ok().map(|share| share / 100.0).zip(total_memory(host).ok()).map(|(a, b)| a * b)
            }
            None => mebibytes(amount),
        };
        let mebibytes = mebibytes.ok_or_else(|| Gap::unknown(format!("{file}: memory.available is {amount}")))?;
        sample.value("eviction_memory", mebibytes, format!("memory.available is {amount}"));
        Ok(())
    }
}

/// The word behind `memory.available` in `evictionHard`: YAML and JSON write it alike but for quotes.
fn hard_memory(text: &str) -> Option<&str> {
    let (_, section) = text.split_once("evictionHard")?;
    let (_, rest) = section.split_once("memory.available")?;
    rest.split(|c: char| c.is_whitespace() || "\":,}'".contains(c)).find(|word| !word.is_empty())
}

fn mebibytes(amount: &str) -> Option<f64> {
    let digits = amount.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match amount.strip_prefix(digits)? {
        "" => 1.0 / f64::from(1 << 20),
        "Ki" => 1.0 / 1024.0,
        "Mi" => 1.0,
        "Gi" => 1024.0,
        "M" => 1e6 / f64::from(1 << 20),
        "G" => 1e9 / f64::from(1 << 20),
        _ => return None,
    };
    Some(digits.parse::<f64>().ok()? * factor)
}
