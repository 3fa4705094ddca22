//! Who is raced, and how each is called.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use cni::AttachmentKey;
use ipam::{Allocation, Allocations, BootId, BootTime, NetnsRecord, PodRecord, Pools, Store};
use serde_json::{Value, json};
use vcn::{Family, IfName, NETWORK_NAME};

use super::args::Args;
use super::listener;
use super::node;
use super::pod::Pod;
use super::verb::{self, Run};

/// The state directory without a listener.
const ALONE: &str = "alone";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// ptp with host-local, from containernetworking.
    Reference,
    Ours,
    /// The bare netlink calls.
    Floor,
    /// The same in a program that starts as the plugin does.
    LeanFloor,
    Empty,
}

/// The verbs of a turn.
pub(crate) const BOTH: &[&str] = &["ADD", "DEL"];

/// One contender, with its state prepared.
#[derive(Clone, Debug)]
pub(crate) struct Contender {
    pub(crate) kind: Kind,
    /// As the tables call it.
    pub(crate) name: &'static str,
    /// As part of container identifiers.
    pub(crate) label: &'static str,
    pub(crate) families: Vec<Family>,
    pub(crate) verbs: &'static [&'static str],
    pub(crate) ifname: &'static str,
    pub(crate) program: PathBuf,
    /// Where the reference plugins are.
    pub(crate) reference: PathBuf,
    /// What it reads on stdin.
    pub(crate) document: Vec<u8>,
    pub(crate) state: Option<PathBuf>,
}

impl Contender {
    /// All of them, in the order of their turns.
    pub(crate) fn all(args: &Args, state: &Path) -> anyhow::Result<Vec<Self>> {
        let of = |kind, name, label, program: PathBuf, document: Value| Self {
            kind,
            name,
            label,
            families: vec![Family::Ipv4],
            verbs: if kind == Kind::Empty { &["ADD"] } else { BOTH },
            ifname: "eth0",
            program,
            reference: args.reference.clone(),
            state: document.get("stateDir").and_then(Value::as_str).map(PathBuf::from),
            document: document.to_string().into_bytes(),
        };
        let ours = |directory: &str, families: &[Family]| -> anyhow::Result<Value> {
            let state = state.join(directory);
            std::fs::create_dir(&state)?;
            if directory != ALONE {
                listener::listen(&state)?;
            }
            node::write_pools(&state, families)?;
            wear_in(&state, args.held).with_context(|| format!("prepare the state in {}", state.display()))?;
            Ok(json!({"cniVersion": "1.0.0", "name": NETWORK_NAME, "type": "vcn-native", "stateDir": state}))
        };
        let plugin = args.program("vcn-native")?;
        let ipam = json!({
            "type": "host-local", "dataDir": state.join("host-local"),
            "ranges": [[{"subnet": "10.244.0.0/22"}]], "routes": [{"dst": "0.0.0.0/0"}],
        });
        let ptp = json!({
            "cniVersion": "1.0.0", "name": "reference", "type": "ptp", "ipMasq": false, "mtu": 9000, "ipam": ipam,
        });
        let ipv4 = ours("ipv4", &[Family::Ipv4])?;
        let dual = ours("dual", &Family::ALL)?;
        let alone = ours(ALONE, &[Family::Ipv4])?;
        Ok(vec![
            of(Kind::Reference, "ptp + host-local", "ptp", args.reference.join("ptp"), ptp),
            of(Kind::Ours, "vcn-native", "own", plugin.clone(), ipv4),
            of(Kind::Floor, "bare netlink calls", "floor", args.program("bare-floor")?, Value::Null),
            of(
                Kind::LeanFloor,
                "bare netlink calls, plugin's C library",
                "lean",
                args.program("as-plugin/bare-floor")?,
                Value::Null,
            ),
            Self {
                families: Family::ALL.to_vec(),
                ..of(Kind::Ours, "vcn-native, dual stack", "dual", plugin.clone(), dual)
            },
            of(Kind::Ours, "vcn-native, no agent listens", "alone", plugin, alone),
            of(Kind::Empty, "empty static main", "empty", args.program("empty-main")?, Value::Null),
        ])
    }

    /// Whether it is a CNI plugin, whose answers mean something.
    pub(crate) fn is_plugin(&self) -> bool {
        matches!(self.kind, Kind::Reference | Kind::Ours)
    }

    pub(crate) fn add(&self, pod: &Pod) -> anyhow::Result<Run> {
        self.run("ADD", pod)
    }

    pub(crate) fn del(&self, pod: &Pod) -> anyhow::Result<Run> {
        self.run("DEL", pod)
    }

    pub(crate) fn run(&self, verb: &str, pod: &Pod) -> anyhow::Result<Run> {
        let mut command = Command::new(&self.program);
        command.env_clear();
        match self.kind {
            Kind::Reference | Kind::Ours => {
                command
                    .env("CNI_COMMAND", verb)
                    .env("CNI_CONTAINERID", &pod.id)
                    .env("CNI_NETNS", pod.path())
                    .env("CNI_IFNAME", self.ifname)
                    .env("CNI_PATH", &self.reference)
                    .envs(self.state.as_ref().map(|state| (attachment::STATE_DIR_VARIABLE, state)))
                    .env("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=bench");
            }
            Kind::Floor | Kind::LeanFloor => {
                command.args([verb.to_lowercase(), pod.path()]);
            }
            Kind::Empty => {}
        }
        verb::run(&mut command, &self.document).with_context(|| format!("{verb} of {} by {}", pod.id, self.name))
    }

    /// Its pod must be able to talk before anything is timed.
    pub(crate) fn prove(&self) -> anyhow::Result<()> {
        let pod = Pod::new(format!("proof-{}", self.label))?;
        let added = self.add(&pod)?;
        if self.is_plugin() {
            let result = added.added()?;
            let given = result.pointer("/ips").and_then(Value::as_array).map_or(0, Vec::len);
            ensure!(given == self.families.len(), "another number of addresses: {result}");
            for family in &self.families {
                pod.must_reach(reachable(self.kind, *family))?;
            }
        }
        self.del(&pod)?;
        Ok(())
    }

    /// What the program says that it is.
    pub(crate) fn about(&self) -> anyhow::Result<String> {
        let output = Command::new(&self.program).env_clear().output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(said.lines().next().unwrap_or("says nothing about itself").to_owned())
    }
}

/// Makes the state that of a node which has run for days: `held` pods are there, and every other address has been a
/// pod's before and has rested since.
fn wear_in(state: &Path, held: usize) -> anyhow::Result<()> {
    let boot = BootId::current()?;
    let (store, pools) = (Store::new(state, boot.clone()), Pools::read(state, &boot)?);
    let long_ago = BootTime(BootTime::now()?.0.saturating_sub(Duration::from_secs(3600).as_millis().try_into()?));
    let keys = |count: usize, what: &'static str| {
        // As long as a container runtime's identifiers.
        (0..count).map(move |number| -> anyhow::Result<AttachmentKey> {
            Ok(format!("{NETWORK_NAME}/{what}{number:0>width$}/eth0", width = 64 - what.len()).parse()?)
        })
    };
    let reserve = |held: &mut Allocations, key: AttachmentKey| -> anyhow::Result<bool> {
        let host_link = IfName::new("vcn000000000000")?;
        let pod = PodRecord { namespace: "default".into(), name: "web-7c5ddbdf54-x2x7q".into(), uid: None };
        let path = "/var/run/netns/cni-5d3a9d1c-1b5e-7d0e-5a2b-9c1f0e7d6b5a".into();
        let netns = NetnsRecord { path, dev: 4, inode: 4_026_532_201 };
        let request = Allocation::requested(key.clone(), host_link);
        let request = Allocation { pod: Some(pod), netns: Some(netns), ..request };
        match held.reserve(&pools, request, long_ago) {
            Err(ipam::Error::Exhausted(_)) => Ok(false),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(held.commit(&key).map(|()| true)?),
        }
    };
    store.update(|all| -> anyhow::Result<()> {
        for key in keys(held, "held") {
            reserve(all, key?)?;
        }
        let mut used = Vec::new();
        for key in keys(usize::from(u16::MAX), "gone") {
            let key = key?;
            if !reserve(all, key.clone())? {
                break;
            }
            used.push(key);
        }
        used.iter().for_each(|key| drop(all.release(key, long_ago)));
        // As the agent does when they have rested.
        for freed in all.freed.clone() {
            all.forget(freed.address, freed.at);
        }
        Ok(())
    })
}

/// The router of the first VNIC, which our pod must reach; a pod of the reference plugins, which no router knows, reaches its host.
const fn reachable(kind: Kind, family: Family) -> &'static str {
    match (kind, family) {
        (Kind::Ours, Family::Ipv4) => "10.0.0.1",
        (Kind::Ours, Family::Ipv6) => "2001:db8::1",
        _ => "10.0.0.2",
    }
}
