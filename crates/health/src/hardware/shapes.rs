//! Which devices a shape has, as data: [shapes.json](shapes.json), a source per row. A field that no source gives is not
//! judged.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde::{Deserialize, Deserializer};

use super::pci::PciAddress;

/// The devices of some shapes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Shape {
    /// The names of the shapes that are alike.
    pub shapes: Vec<String>,
    /// The GPUs that such an instance has.
    pub gpus: Option<GpuRow>,
    /// The functions of their RDMA network.
    pub rdma: Option<RdmaRow>,
    /// How many local disks they have.
    pub nvme: Option<usize>,
    /// Whether its GPUs are joined by NVSwitches. With NVLink 5 (B200, B300) the bus does not show them.
    #[serde(default)]
    pub nvswitch: bool,
    /// Where that is written.
    pub source: String,
}

/// The GPUs of a shape.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct GpuRow {
    /// The maker's PCI number.
    #[serde(deserialize_with = "hexadecimal")]
    pub vendor: u16,
    /// The PCI addresses of the GPUs.
    #[serde(default, deserialize_with = "addresses")]
    pub at: Vec<PciAddress>,
    /// How many there are, where the addresses are not known.
    #[serde(default)]
    pub count: usize,
}

/// The functions of a shape's RDMA network.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RdmaRow {
    /// Where they are: function 0 of each.
    #[serde(default, deserialize_with = "addresses")]
    at: Vec<PciAddress>,
    /// How many functions each has.
    #[serde(default = "one")]
    functions: u8,
    /// How many there are, where the addresses are not known.
    #[serde(default)]
    pub count: usize,
    /// Functions of the front end, which are not part of the RDMA network.
    #[serde(default, deserialize_with = "addresses")]
    pub front_end: Vec<PciAddress>,
    /// The rate of a port in Gb/s.
    pub gbps: Option<f64>,
}

const fn one() -> u8 {
    1
}

/// Empty only if the shipped file is not valid, which a test excludes.
static SHAPES: LazyLock<Vec<Shape>> =
    LazyLock::new(|| serde_json::from_str(include_str!("shapes.json")).unwrap_or_default());

impl Shape {
    /// The row of a shape.
    pub fn of(name: &str) -> Option<&'static Self> {
        SHAPES.iter().find(|row| row.shapes.iter().any(|known| known == name))
    }
}

impl GpuRow {
    /// The number of GPUs that such an instance has.
    pub fn expected(&self) -> usize {
        self.count.max(self.at.len())
    }
}

impl RdmaRow {
    /// Whether the shape has no RDMA network.
    pub fn is_none(&self) -> bool {
        self.at.is_empty() && self.count == 0
    }

    /// Where the functions are; empty where that is not known.
    pub fn functions(&self) -> BTreeSet<PciAddress> {
        self.at.iter().flat_map(|at| (0..self.functions).map(|function| at.with_function(function))).collect()
    }
}

/// `0f` is 0000:0f:00.0, `0008:01` is 0008:01:00.0.
fn addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PciAddress>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let read = |word: &str| {
        let whole = if word.contains(':') { format!("{word}:00") } else { format!("0000:{word}:00") };
        whole.parse().map_err(serde::de::Error::custom)
    };
    text.split(' ').map(read).collect()
}

fn hexadecimal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    u16::from_str_radix(&String::deserialize(deserializer)?, 16).map_err(serde::de::Error::custom)
}

/// Whether machines of a shape have an RDMA network.
pub fn has_rdma_network(shape: &str) -> bool {
    ["BM.GPU", "BM.HPC", "BM.Optimized"].iter().any(|family| shape.starts_with(family))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_table_is_valid_and_names_each_shape_once() {
        let shapes = serde_json::from_str::<Vec<Shape>>(include_str!("shapes.json")).unwrap();
        let mut names: Vec<&String> = shapes.iter().flat_map(|row| &row.shapes).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(shapes.iter().all(|row| !row.source.is_empty()));
    }

    #[test]
    fn rows_have_their_devices() {
        let count = |name: &str| {
            let row = Shape::of(name).unwrap();
            (row.gpus.as_ref().map_or(0, GpuRow::expected), row.rdma.as_ref().map_or(0, |rdma| rdma.functions().len()))
        };
        assert_eq!(count("BM.GPU.H100.8"), (8, 16));
        assert_eq!(count("BM.GPU.H200.8"), (8, 8));
        assert_eq!((count("BM.HPC2.36"), count("VM.GPU3.4")), ((0, 1), (4, 0)));
        assert!(Shape::of("VM.Standard.E5.Flex").is_none());
        let is_without_rdma = |name: &str| Shape::of(name).unwrap().rdma.as_ref().is_some_and(RdmaRow::is_none);
        assert!(
            is_without_rdma("BM.GPU.A10.4")
                && !is_without_rdma("BM.GPU.MI300X.8")
                && !is_without_rdma("BM.GPU.H100T.8")
        );
        assert!(Shape::of("BM.GPU.B200.8").unwrap().nvswitch, "NVSwitches of NVLink 5 are not on the bus");
    }
}
