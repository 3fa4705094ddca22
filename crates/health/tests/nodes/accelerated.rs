//! Nodes with accelerators in the formats of the kernel and its drivers, and what is read of them. Their trees are built:
//! `tests/recorded/accelerators/README.md` has the sources. The rest of the machine is a recorded one.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use health::hardware::shapes::Shape;
use host_harness::write_accelerators;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use serde_json::json;

use crate::node::Node;

impl Node {
    /// BM.GPU.H100.8: eight GPUs, four NVSwitches, 16 RDMA functions of 200 Gb/s, two of the front end, of which one is down by
    /// design, 16 local disks.
    pub(crate) fn h100() -> Self {
        let mut node = Self::accelerated("oke-e5-192-bm", "BM.GPU.H100.8");
        node.facts.allocatable_gpus = Some(8);
        let functions = Shape::of("BM.GPU.H100.8").unwrap().rdma.as_ref().unwrap().functions();
        let reporters =
            functions.iter().flat_map(|at| ["fw", "fw_fatal"].map(|name| json!([at.to_string(), name, false])));
        node.system.answers.lock().unwrap()["devlink"] = reporters.collect();
        node
    }

    /// BM.GPU.MI300X.8: eight GPUs of AMD, eight RDMA functions, eight local disks.
    pub(crate) fn mi300x() -> Self {
        Self::accelerated("oke-e5-192-bm", "BM.GPU.MI300X.8")
    }

    /// VM.GPU.A10.1: one GPU on the bus of a virtual machine.
    pub(crate) fn a10() -> Self {
        Self::accelerated("oke-e5-flex-vm", "VM.GPU.A10.1")
    }

    fn accelerated(machine: &str, shape: &str) -> Self {
        let (links, memory) = match machine {
            "oke-e5-192-bm" => (["ens300f0np0", "enp1s0vlan1"], 2_378_757_570_560),
            _ => (["ens3", "ens5"], 64_277_708_800),
        };
        let node = Self::of(machine, shape, &links, memory);
        write_accelerators(&shape.to_lowercase().replace('.', "-"), &node.path(""));
        node
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
