//! The accelerators of a node: its GPUs, and the functions of its RDMA network. By PCI address: numbers of devices change from
//! boot to boot.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::pci::PciAddress;
use super::shapes::{Shape, has_rdma_network};
use crate::host::{Host, names};
use crate::signal::Gap;

/// PCI numbers of makers.
pub(crate) const NVIDIA: u16 = 0x10de;
pub(crate) const AMD: u16 = 0x1002;

/// The upper 16 of a class's 24 bits: displays, and accelerators without one. AMD's processors have displays of class 0x0300, too.
const NVIDIA_GPU_CLASSES: &[u32] = &[0x0300, 0x0302];
const AMD_GPU_CLASSES: &[u32] = &[0x0302, 0x0380, 0x1200];

/// NVSwitches of A100 and H100 baseboards.
const NVSWITCHES: &[u16] = &[0x1af1, 0x22a3];

/// Where the kernel lists PCI functions.
const PCI: &str = "bus/pci/devices";

/// The most functions that are examined: a machine with 18 adapters has about 250.
const MAX_FUNCTIONS: usize = 2048;

/// What a node has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inventory {
    pub(crate) shape: String,
    /// Its row in the table.
    pub(crate) row: Option<&'static Shape>,
    /// GPUs that the bus shows.
    pub(crate) gpus: Vec<Gpu>,
    /// Adapters with an InfiniBand device, of RDMA and front end.
    pub(crate) adapters: Vec<Adapter>,
    /// Whether there is an NVSwitch, by the bus or by the shape.
    pub(crate) has_nvswitch: bool,
}

/// A GPU on the PCI bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gpu {
    pub(crate) address: PciAddress,
    pub(crate) vendor: u16,
}

/// A function of a network adapter that has an InfiniBand device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Adapter {
    pub(crate) address: PciAddress,
    /// Its device, such as `mlx5_3`.
    pub(crate) device: String,
}

/// What PCI functions are, which does not change while they are there: a machine has hundreds, and most are of no interest.
pub(crate) type KnownFunctions = BTreeMap<PciAddress, Function>;

/// The numbers of a PCI function.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Function {
    class: u32,
    vendor: u16,
    device: u16,
}

impl Inventory {
    /// Reads it. Numbers that are known are not read again.
    ///
    /// # Errors
    /// [`Gap::NotApplicable`] on a node without GPU and RDMA network.
    pub(crate) fn of(host: &Host, known: &mut KnownFunctions) -> Result<Self, Gap> {
        let shape = host.facts.shape.clone().unwrap_or_default();
        let mut found = Self { row: Shape::of(&shape), shape, ..Self::default() };
        let names = names(&host.sys.join(PCI));
        let present: BTreeSet<PciAddress> =
            names.iter().take(MAX_FUNCTIONS).filter_map(|name| name.parse().ok()).collect();
        known.retain(|address, _| present.contains(address));
        for address in present {
            let function = *known.entry(address).or_insert_with(|| Function::read(host, address));
            found.add(host, address, function);
        }
        found.has_nvswitch |= found.row.is_some_and(|row| row.nvswitch);
        let is_listed = found.row.is_some_and(|row| row.gpus.is_some() || row.rdma.is_some());
        if !found.gpus.is_empty() || is_listed || has_rdma_network(&found.shape) {
            return Ok(found);
        }
        Err(Gap::absent("this node has neither a GPU nor an RDMA network"))
    }

    fn add(&mut self, host: &Host, address: PciAddress, function: Function) {
        let Function { class, vendor, device } = function;
        let kind = class >> 8;
        let is_gpu = (vendor == NVIDIA && NVIDIA_GPU_CLASSES.contains(&kind))
            || (vendor == AMD && AMD_GPU_CLASSES.contains(&kind));
        // A virtual function of a GPU belongs to a virtual machine.
        if is_gpu && host.sys.join(format!("{PCI}/{address}/physfn")).symlink_metadata().is_err() {
            self.gpus.push(Gpu { address, vendor });
        }
        if vendor == NVIDIA && kind >> 8 == 0x06 {
            self.has_nvswitch |= NVSWITCHES.contains(&device);
        }
        if kind >> 8 == 0x02
            && let Some(device) = names(&host.sys.join(format!("{PCI}/{address}/infiniband"))).into_iter().next()
        {
            self.adapters.push(Adapter { address, device });
        }
    }

    /// The adapters of the RDMA network: those on the shape's list. None of a shape that is not in the table, because its front
    /// end cannot be distinguished.
    ///
    /// # Errors
    /// [`Gap::NotApplicable`] with the reason.
    pub(crate) fn rdma(&self) -> Result<Vec<&Adapter>, Gap> {
        let Some(row) = self.row else {
            let seen = self.adapters.len();
            return Err(Gap::absent(format!("the shape {} is not in the table: {seen} adapters seen", self.shape)));
        };
        let Some(rdma) = &row.rdma else {
            return Err(Gap::absent(format!("no RDMA functions of {} are known ({})", self.shape, row.source)));
        };
        if rdma.is_none() {
            return Err(Gap::absent(format!("{} has no RDMA network", self.shape)));
        }
        let listed = rdma.functions();
        let is_rdma = |adapter: &&Adapter| {
            if listed.is_empty() {
                !rdma.front_end.contains(&adapter.address.with_function(0))
            } else {
                listed.contains(&adapter.address)
            }
        };
        Ok(self.adapters.iter().filter(is_rdma).collect())
    }

    /// Whether no source names the adapters of its RDMA network.
    pub(crate) fn has_unknown_rdma(&self) -> bool {
        !self.adapters.is_empty() && self.row.is_none_or(|row| row.rdma.is_none())
    }

    /// GPUs and RDMA functions.
    pub(crate) fn addresses(&self) -> Vec<PciAddress> {
        let rdma = self.rdma().unwrap_or_default();
        self.gpus.iter().map(|gpu| gpu.address).chain(rdma.iter().map(|adapter| adapter.address)).collect()
    }
}

impl Function {
    fn read(host: &Host, address: PciAddress) -> Self {
        let number = |name: &str| {
            let text = host.sys(&file(address, name)).ok()?;
            u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
        };
        let short = |name: &str| number(name).and_then(|number| u16::try_from(number).ok()).unwrap_or_default();
        let class = number("class").unwrap_or_default();
        // Displays, accelerators, bridges of other kinds (NVSwitches), network adapters.
        if !matches!(class >> 16, 0x03 | 0x12 | 0x06 | 0x02) {
            return Self { class, ..Self::default() };
        }
        Self { class, vendor: short("vendor"), device: short("device") }
    }
}

/// The path of a function's file below /sys.
pub(crate) fn file(address: PciAddress, name: &str) -> String {
    format!("{PCI}/{address}/{name}")
}

/// Whether a function is awake: reading registers of one that sleeps wakes it, or gives nonsense. Unknown counts as asleep.
pub(crate) fn is_awake(host: &Host, address: PciAddress) -> bool {
    host.sys(&file(address, "power/runtime_status")).is_ok_and(|status| status.trim() == "active")
}

/// The NUMA node that a function is near to; the kernel writes -1 where there is none.
pub(crate) fn numa(host: &Host, address: PciAddress) -> Option<i32> {
    host.sys(&file(address, "numa_node")).ok()?.trim().parse().ok().filter(|node| *node >= 0)
}

/// The PCI function behind which a function is.
pub(crate) fn parent(host: &Host, address: PciAddress) -> Option<PciAddress> {
    let path = fs::read_link(host.sys.join(format!("{PCI}/{address}"))).ok()?;
    path.parent()?.file_name()?.to_str()?.parse().ok()
}

/// The name of the driver that has a function.
pub(crate) fn driver(host: &Host, address: PciAddress) -> Option<String> {
    let path = fs::read_link(host.sys.join(file(address, "driver"))).ok()?;
    Some(path.file_name()?.to_str()?.to_owned())
}
