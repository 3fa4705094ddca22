//! A page of metrics of NVIDIA's dcgm-exporter: lines of Prometheus's text format, with the GPU's identity as labels. Pure.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::hardware::pci::PciAddress;

/// Result of a health watch: 0 passes, 10 warns, 20 fails (`dcgmHealthWatchResults_t`).
pub(crate) const HEALTH: &str = "DCGM_EXP_GPU_HEALTH_STATUS";
/// 1 where rows of the memory could not be remapped.
pub(crate) const REMAP_FAILURE: &str = "DCGM_FI_DEV_ROW_REMAP_FAILURE";
/// Why clocks are low, as bits; the first name is that of DCGM 4.
pub(crate) const CLOCK_REASONS: [&str; 2] = ["DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"];

/// From here on a number stands for a value that DCGM does not have (`DCGM_INT32_BLANK`; the others are larger).
const BLANK: f64 = 2_147_483_632.0;

/// The largest number of GPUs of a page: a page with more is not this node's.
const MAX_GPUS: usize = 64;

/// The most readings that are kept of a GPU. A health watch is a reading; with MIG each instance has its own.
const MAX_READINGS: usize = 256;

/// The longest kept name of a watch with its error, in characters.
const MAX_WATCH: usize = 60;

/// The readings of a page, by GPU.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Page {
    pub(crate) gpus: BTreeMap<Identity, GpuPage>,
}

/// How a page names a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    /// Such as `GPU-5a0d…`; empty where it has none.
    pub(crate) uuid: String,
    pub(crate) address: Option<PciAddress>,
}

/// The readings of one GPU.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct GpuPage {
    /// Of all its lines: it changes while the exporter measures.
    pub(crate) hash: u64,
    pub(crate) readings: Vec<Reading>,
}

/// A value of interest.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reading {
    pub(crate) metric: &'static str,
    pub(crate) value: f64,
    /// The health watch, such as `PCIE`, and its error.
    pub(crate) watch: String,
}

impl Page {
    /// Reads one; lines that are not of a GPU, or not in the format, are left out.
    pub(crate) fn read(text: &str) -> Self {
        let mut page = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            page.add(line);
        }
        page
    }

    fn add(&mut self, line: &str) -> Option<()> {
        let (name, rest) = line.split_once('{')?;
        let (labels, value) = rest.rsplit_once('}')?;
        let labels = labels_of(labels);
        let label = |name: &str| labels.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str());
        let uuid = label("UUID").or_else(|| label("uuid")).filter(|uuid| uuid.starts_with("GPU-"));
        let address = label("pci_bus_id").and_then(|text| text.parse().ok());
        if !name.starts_with("DCGM_") || uuid.is_none() && address.is_none() {
            return None;
        }
        let identity = Identity { uuid: uuid.unwrap_or_default().to_owned(), address };
        if self.gpus.len() >= MAX_GPUS && !self.gpus.contains_key(&identity) {
            return None;
        }
        let gpu = self.gpus.entry(identity).or_default();
        let mut hasher = DefaultHasher::new();
        (gpu.hash, line).hash(&mut hasher);
        gpu.hash = hasher.finish();
        let [new, old] = CLOCK_REASONS;
        let metric = [HEALTH, REMAP_FAILURE, new, old].into_iter().find(|metric| *metric == name)?;
        // A time may follow the value.
        let value = value.split_whitespace().next()?.parse().ok().filter(|value| (0.0..BLANK).contains(value))?;
        let watch = [label("health_watch"), label("health_error_code")].into_iter().flatten();
        if gpu.readings.len() < MAX_READINGS {
            let watch = vcn::excerpt(&watch.collect::<Vec<_>>().join(" "), MAX_WATCH).into_owned();
            gpu.readings.push(Reading { metric, value, watch });
        }
        Some(())
    }
}

/// `name="value",…`, in which `\"`, `\\` and `\n` are escaped. Older exporters write a blank after the comma.
fn labels_of(text: &str) -> Vec<(&str, String)> {
    let mut labels = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once("=\"") {
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next() {
                Some((_, '\\')) => value.extend(chars.next().map(|(_, char)| char)),
                Some((at, '"')) => break at,
                Some((_, char)) => value.push(char),
                None => return labels,
            }
        };
        labels.push((name.trim_start_matches([',', ' ']), value));
        rest = after.get(end + 1..).unwrap_or_default();
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_each_version_name_their_gpu() {
        let identity =
            |labels: &str| Page::read(&format!("DCGM_FI_DEV_GPU_TEMP{{{labels}}} 31\n")).gpus.into_keys().next();
        let of = |uuid: &str, address: Option<&str>| {
            Some(Identity { uuid: uuid.to_owned(), address: address.map(|text| text.parse().unwrap()) })
        };
        assert_eq!(identity(r#"gpu="0", UUID="GPU-604ac76c""#), of("GPU-604ac76c", None));
        assert_eq!(identity(r#"gpu="0",uuid="GPU-a",device="nvidia0""#), of("GPU-a", None));
        let current = r#"gpu="1",UUID="GPU-a",pci_bus_id="00000000:1B:00.0",modelName="a, \"b\" {c}",Hostname="n""#;
        assert_eq!(identity(current), of("GPU-a", Some("0000:1b:00.0")));
        assert_eq!(identity(r#"nvswitch="0",Hostname="n""#), None);
    }

    #[test]
    fn values_that_dcgm_has_not_got_are_left_out() {
        let readings = |value: &str| {
            let page = Page::read(&format!("{REMAP_FAILURE}{{UUID=\"GPU-a\"}} {value}\n"));
            page.gpus.into_values().next().unwrap().readings.len()
        };
        let values = ["0", "1", "1 1700000000000", "9223372036854775794", "2147483632", "NaN", "", "x", "-1", "1e400"];
        assert_eq!(values.map(readings), [1, 1, 1, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn broken_and_endless_pages_are_bounded() {
        for text in ["", "{", "}{", "DCGM_A{UUID=\"GPU-a", "DCGM_A{=\"\\", "DCGM_A{UUID=\"GPU-\u{e9}\\\"} 1", "a}b{c"] {
            assert!(Page::read(text).gpus.len() <= 1, "{text}");
        }
        let line = |number: usize| format!("{HEALTH}{{UUID=\"GPU-{}\",health_watch=\"PCIE\"}} 0\n", number % 1000);
        let page = Page::read(&(0..100_000).map(line).collect::<String>());
        assert!(page.gpus.len() == MAX_GPUS && page.gpus.values().all(|gpu| gpu.readings.len() <= MAX_READINGS));
    }
}
