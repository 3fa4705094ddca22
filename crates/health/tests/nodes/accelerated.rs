//! Nodes with accelerators in the formats of the kernel and its drivers. Built, not recorded: addresses and numbers are those of
//! the table of shapes and of the makers' documentation; the rest of the machine is a recorded one.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use health::hardware::shapes::Shape;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use serde_json::json;

use crate::node::Node;

/// A PCI function to build.
struct Function<'a> {
    address: &'a str,
    class: &'a str,
    vendor: &'a str,
    device: &'a str,
    driver: &'a str,
}

impl Node {
    /// BM.GPU.H100.8: eight GPUs, four NVSwitches, 16 RDMA functions of 200 Gb/s, two cards of the front end with a port without
    /// cable each, 16 local disks.
    pub(crate) fn h100() -> Self {
        let mut node = Self::bare("BM.GPU.H100.8");
        let row = Shape::of("BM.GPU.H100.8").unwrap();
        for (number, address) in row.gpus.as_ref().unwrap().at.iter().enumerate() {
            node.nvidia(&address.to_string(), "0x2330", number);
        }
        for bus in ["05", "06", "07", "08"] {
            let address = &format!("0000:{bus}:00.0");
            node.function(&Function {
                address,
                class: "0x068000",
                vendor: "0x10de",
                device: "0x22a3",
                driver: "nvidia-nvswitch",
            });
        }
        let functions = row.rdma.as_ref().unwrap().functions();
        for (number, address) in functions.iter().enumerate() {
            node.adapter(&address.to_string(), number, "200 Gb/sec (4X HDR)");
        }
        node.front_end(functions.len());
        node.disks(row.nvme.unwrap());
        let unit = "nvidia-fabricmanager.service";
        node.write(&format!("host/usr/lib/systemd/system/{unit}"), "[Service]\n");
        // As a container sees it: the host's processes are in no cgroup.procs.
        node.write(&format!("host/sys/fs/cgroup/systemd/system.slice/{unit}/cgroup.procs"), "");
        node.write(&format!("host/sys/fs/cgroup/pids/system.slice/{unit}/pids.current"), "9\n");
        node.write("proc/sys/kernel/random/boot_id", "5c1b0f6e-6f0b-4b5c-9a3c-3a1f0a7c2b11\n");
        node.write("proc/stat", "cpu  1 2 3\nbtime 1763000000\nprocesses 9\n");
        node.facts.allocatable_gpus = Some(8);
        let reporters =
            functions.iter().flat_map(|at| ["fw", "fw_fatal"].map(|name| json!([at.to_string(), name, false])));
        node.system.answers.lock().unwrap()["devlink"] = reporters.collect();
        node
    }

    /// BM.GPU.MI300X.8: eight GPUs of AMD, eight RDMA functions of whose addresses none is published, eight local disks.
    pub(crate) fn mi300x() -> Self {
        let node = Self::bare("BM.GPU.MI300X.8");
        let row = Shape::of("BM.GPU.MI300X.8").unwrap();
        node.write("sys/module/amdgpu/version", "6.12.12\n");
        for address in row.gpus.as_ref().unwrap().at.iter().map(ToString::to_string) {
            let address = &address;
            node.function(&Function {
                address,
                class: "0x120000",
                vendor: "0x1002",
                device: "0x74a1",
                driver: "amdgpu",
            });
            node.write(&pci(address, "ras/umc_err_count"), "ue: 0\nce: 0\n");
            node.write(&pci(address, "ras/gpu_vram_bad_pages"), "");
        }
        for (number, bus) in ["0c", "2a", "41", "58", "86", "a5", "bd", "d5"].iter().enumerate() {
            node.adapter(&format!("0000:{bus}:00.0"), number, "400 Gb/sec (4X NDR)");
        }
        node.front_end(8);
        node.disks(8);
        node
    }

    /// VM.GPU.A10.1: one GPU on the bus of a virtual machine.
    pub(crate) fn a10() -> Self {
        let node = Self::of("oke-e5-flex-vm", "VM.GPU.A10.1", &["ens3", "ens5"], 64_277_708_800);
        node.nvidia("0000:00:04.0", "0x2236", 0);
        // A virtual machine has no ports before its devices, and no counts of their errors.
        for name in ["aer_dev_fatal", "aer_dev_nonfatal", "aer_dev_correctable"] {
            fs::remove_file(node.path(&pci("0000:00:04.0", name))).unwrap();
            fs::remove_file(node.path(&pci("0000:ff:01.0", name))).unwrap();
        }
        node
    }

    /// The rest of a bare-metal machine.
    fn bare(shape: &str) -> Self {
        let mut node = Self::of("oke-e5-192-bm", shape, &["ens300f0np0", "enp1s0vlan1"], 2_378_757_570_560);
        node.facts.shape = Some(shape.to_owned());
        for (name, text) in [("oci-hpc-mlx-configure", "COMPLETED"), ("oci-rdma-authentication", "COMPLETED")] {
            node.write(&format!("host/run/oci-hpc/{name}.json"), &format!(r#"{{"state": "{text}"}}"#));
        }
        node.write("host/usr/share/doc/oracle-cloud-agent-1.39.0/README", "");
        for policy in 0..4 {
            node.write(&format!("sys/devices/system/cpu/cpufreq/policy{policy}/scaling_governor"), "performance\n");
            node.write(&format!("sys/devices/system/edac/mc/mc{policy}/ue_count"), "0\n");
            node.write(&format!("sys/devices/system/edac/mc/mc{policy}/ce_count"), "3\n");
        }
        node
    }

    /// A function behind a port of its own.
    fn function(&self, function: &Function<'_>) {
        let Function { address, class, vendor, device, driver } = function;
        let (domain, rest) = address.split_once(':').unwrap();
        let bus = u8::from_str_radix(&rest[..2], 16).unwrap();
        let port = format!("{domain}:{:02x}:01.0", bus.wrapping_sub(1));
        let folder = format!("sys/devices/pci{domain}:{:02x}/{port}", bus.wrapping_sub(1));
        if !self.path(&folder).exists() {
            self.files(&folder, "0x060400", "0x8086", "0x352a");
            self.link(&format!("sys/bus/pci/devices/{port}"), &format!("../../../../{folder}"));
        }
        let inner = format!("{folder}/{address}");
        self.files(&inner, class, vendor, device);
        self.link(&format!("sys/bus/pci/devices/{address}"), &format!("../../../../{inner}"));
        self.link(&format!("{inner}/driver"), &format!("../../../../bus/pci/drivers/{driver}"));
    }

    fn files(&self, folder: &str, class: &str, vendor: &str, device: &str) {
        let number = |text: &str| u16::from_str_radix(&text[2..], 16).unwrap().to_le_bytes();
        let ([a, b], [c, d]) = (number(vendor), number(device));
        for (name, text) in [
            ("class", class),
            ("vendor", vendor),
            ("device", device),
            ("power/runtime_status", "active"),
            ("current_link_width", "16"),
            ("max_link_width", "16"),
            ("current_link_speed", "2.5 GT/s PCIe"),
            ("numa_node", "1"),
            ("max_link_speed", "32.0 GT/s PCIe"),
            ("aer_dev_fatal", "Undefined 0\nDLP 0\nSDES 0\nTLP 0\nTOTAL_ERR_FATAL 0"),
            ("aer_dev_nonfatal", "Undefined 0\nDLP 0\nTLP 0\nTOTAL_ERR_NONFATAL 0"),
            ("aer_dev_correctable", "RxErr 0\nBadTLP 0\nBadDLLP 0\nTOTAL_ERR_COR 12"),
        ] {
            self.write(&format!("{folder}/{name}"), &format!("{text}\n"));
        }
        let config: Vec<u8> = [a, b, c, d].into_iter().chain([0; 60]).collect();
        fs::write(self.path(&format!("{folder}/config")), config).unwrap();
    }

    fn nvidia(&self, address: &str, device: &str, number: usize) {
        self.function(&Function { address, class: "0x030200", vendor: "0x10de", device, driver: "nvidia" });
        self.write("sys/module/nvidia/version", "550.144.03\n");
        self.write(
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.144.03\n",
        );
        let text = format!(
            "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 41\nGPU UUID: \t GPU-00000000-0000-4000-8000-00000000000{number}\n\
             Bus Type: \t PCIe\nBus Location: \t {address}\nDevice Minor: \t {number}\nGPU Excluded:\t No\n"
        );
        self.write(&format!("proc/driver/nvidia/gpus/{address}/information"), &text);
    }

    fn adapter(&self, address: &str, number: usize, rate: &str) {
        self.function(&Function {
            address,
            class: "0x020000",
            vendor: "0x15b3",
            device: "0x101d",
            driver: "mlx5_core",
        });
        let port = format!("infiniband/mlx5_{number}/ports/1");
        for (name, text) in [
            ("state", "4: ACTIVE"),
            ("phys_state", "5: LinkUp"),
            ("link_layer", "Ethernet"),
            ("rate", rate),
            ("gids/0", "fe80:0000:0000:0000:0a3a:88ff:fe00:0001"),
            ("gid_attrs/types/0", "IB/RoCE v1"),
            ("gids/1", "fe80:0000:0000:0000:0a3a:88ff:fe00:0001"),
            ("gid_attrs/types/1", "RoCE v2"),
            ("gids/2", "0000:0000:0000:0000:0000:ffff:0ae0:0101"),
            ("gid_attrs/types/2", "IB/RoCE v1"),
            ("gids/3", "0000:0000:0000:0000:0000:ffff:0ae0:0101"),
            ("gid_attrs/types/3", "RoCE v2"),
            ("gids/4", "0000:0000:0000:0000:0000:0000:0000:0000"),
            ("hw_counters/local_ack_timeout_err", "17"),
            ("hw_counters/rx_icrc_encapsulated", "0"),
            ("counters/link_downed", "255"),
        ] {
            self.write(&pci(address, &format!("{port}/{name}")), &format!("{text}\n"));
        }
        self.write(&pci(address, &format!("infiniband_verbs/uverbs{number}/abi_version")), "1\n");
        self.write(&pci(address, &format!("net/rdma{number}/carrier_down_count")), "2\n");
        self.write(&pci(address, &format!("net/rdma{number}/carrier_up_count")), "3\n");
    }

    /// Two cards with a port without cable each, as BM.GPU.H100.8 has them by design.
    fn front_end(&self, number: usize) {
        for (number, bus) in ["1f", "9a"].iter().enumerate().map(|(card, bus)| (number + 2 * card, bus)) {
            self.adapter(&format!("0000:{bus}:00.0"), number, "100 Gb/sec (2X HDR)");
            let second = format!("0000:{bus}:00.1");
            self.adapter(&second, number + 1, "40 Gb/sec (4X QDR)");
            let port = format!("infiniband/mlx5_{}/ports/1", number + 1);
            self.write(&pci(&second, &format!("{port}/state")), "1: DOWN\n");
            self.write(&pci(&second, &format!("{port}/phys_state")), "3: Disabled\n");
            self.write(&pci(&second, "current_link_width"), "8\n");
            self.write(&pci(&second, &format!("net/rdma{}/carrier_up_count", number + 1)), "0\n");
        }
    }

    fn disks(&self, count: usize) {
        for number in 0..count {
            self.write(&format!("sys/class/nvme/nvme{number}/state"), "live\n");
        }
    }

    /// The files that a step opens, relative to the node's folder.
    pub(crate) fn opened(&mut self, step: impl FnOnce(&mut Self)) -> BTreeSet<String> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
        let root = self.path("");
        let mut folders = Vec::new();
        collect_folders(&root, &mut folders);
        let watch = |folder: PathBuf| (inotify.add_watch(&folder, AddWatchFlags::IN_OPEN).unwrap(), folder);
        let watched: Vec<_> = folders.into_iter().map(watch).collect();
        step(self);
        let mut opened = BTreeSet::new();
        while let Ok(events) = inotify.read_events() {
            assert!(!events.iter().any(|event| event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW)));
            for event in events.into_iter().filter(|event| !event.mask.contains(AddWatchFlags::IN_ISDIR)) {
                let (_, folder) = watched.iter().find(|(watch, _)| *watch == event.wd).unwrap();
                let path = folder.join(event.name.unwrap_or_default());
                opened.insert(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
            }
        }
        opened
    }
}

/// The path of a function's file.
pub(crate) fn pci(address: &str, name: &str) -> String {
    format!("sys/bus/pci/devices/{address}/{name}")
}

fn collect_folders(folder: &Path, found: &mut Vec<PathBuf>) {
    found.push(folder.to_owned());
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            collect_folders(&entry.path(), found);
        }
    }
}
