//! The smallest container runtime: takes the first CNI configuration of a node, as CRI-O and containerd do, and runs
//! its chain for a pod. It uses none of our crates' types, so that it hides no mistake of the plugin.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::error::{Error, ErrorContext, Result};
use crate::node::Node;
use crate::node::Pod;

const CONF_DIR: &str = "/etc/cni/net.d";
const BIN_DIR: &str = "/opt/cni/bin";

/// The runtime of a node: it calls plugins by the node's configuration.
#[derive(Debug)]
pub struct Runtime<'a> {
    node: &'a Node,
    list: Map<String, Value>,
    capabilities: Map<String, Value>,
}

/// A pod that was added.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// The chain's last result.
    pub result: Value,
    /// How long the chain took, process starts included.
    pub took: Duration,
}

impl<'a> Runtime<'a> {
    /// The first configuration by name of a node.
    pub fn of(node: &'a Node) -> Result<Self> {
        let name = node.name();
        let content = node.run(first_configuration)?;
        let content =
            content.ok_or_else(|| Error::Invalid(format!("{name} has no CNI configuration in {CONF_DIR}")))?;
        match serde_json::from_slice(&content).during(|| format!("read the CNI configuration of {name}"))? {
            Value::Object(list) if list.get("plugins").is_some_and(Value::is_array) => {
                Ok(Self { node, list, capabilities: Map::new() })
            }
            _ => Err(Error::Invalid(format!("the CNI configuration of {name} is not a list of plugins"))),
        }
    }

    /// Passes a value, such as `portMappings`, to the plugins that declare the capability.
    pub fn with_capability(mut self, name: &str, value: Value) -> Self {
        self.capabilities.insert(name.to_owned(), value);
        self
    }

    /// ADD for each plugin of the chain, each with the result of the one before.
    pub fn add(&self, pod: &Pod) -> Result<Attachment> {
        let started = Instant::now();
        let mut result = Value::Null;
        for plugin in self.plugins() {
            let answer = self.call(pod, "ADD", plugin, &result)?;
            result = serde_json::from_slice(&answer).during(|| format!("read a result for {}", pod.name()))?;
        }
        Ok(Attachment { result, took: started.elapsed() })
    }

    /// CHECK for each plugin, with the result of all.
    pub fn check(&self, pod: &Pod, attachment: &Attachment) -> Result<()> {
        self.plugins().try_for_each(|plugin| self.call(pod, "CHECK", plugin, &attachment.result).map(|_| ()))
    }

    /// DEL for each plugin, last first. Returns the time it took.
    pub fn del(&self, pod: &Pod, attachment: &Attachment) -> Result<Duration> {
        let started = Instant::now();
        for plugin in self.plugins().collect::<Vec<_>>().into_iter().rev() {
            self.call(pod, "DEL", plugin, &attachment.result)?;
        }
        Ok(started.elapsed())
    }

    fn plugins(&self) -> impl Iterator<Item = &Map<String, Value>> {
        self.list.get("plugins").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
    }

    fn call(&self, pod: &Pod, verb: &'static str, plugin: &Map<String, Value>, previous: &Value) -> Result<Vec<u8>> {
        let mut conf = plugin.clone();
        for key in ["name", "cniVersion"] {
            conf.insert(key.into(), self.list.get(key).cloned().unwrap_or_default());
        }
        if !previous.is_null() {
            conf.insert("prevResult".into(), previous.clone());
        }
        let declared = conf.remove("capabilities").unwrap_or_default();
        let mut passed = self.capabilities.clone();
        passed.retain(|name, _| declared.get(name) == Some(&Value::Bool(true)));
        if !passed.is_empty() {
            conf.insert("runtimeConfig".into(), passed.into());
        }
        let kind = plugin.get("type").and_then(Value::as_str).unwrap_or_default();
        let arguments = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={}", pod.name());
        let output = self
            .node
            .command(Path::new(BIN_DIR).join(kind))
            .env_clear()
            // A runtime passes its own environment; portmap finds iptables there.
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", pod.name())
            .env("CNI_NETNS", pod.path())
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", BIN_DIR)
            .env("CNI_ARGS", arguments)
            .output_of_input(json!(conf).to_string().as_bytes())?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let answer = String::from_utf8_lossy(&output.stdout);
        Err(Error::Invalid(format!("{kind} {verb} of {}: {}", pod.name(), answer.trim())))
    }
}

impl Attachment {
    /// The pod's addresses, without prefix lengths.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.list("ips").filter_map(address)
    }

    /// Those of one interface in the pod.
    pub fn addresses_of(&self, interface: &str) -> impl Iterator<Item = IpAddr> {
        let is_it = |it: &Value| {
            let in_pod = it.get("sandbox").and_then(Value::as_str).is_some_and(|sandbox| !sandbox.is_empty());
            in_pod && it.get("name").and_then(Value::as_str) == Some(interface)
        };
        let index = self.list("interfaces").position(is_it).and_then(|index| u64::try_from(index).ok());
        let on_it = move |ip: &&Value| index.is_some() && ip.get("interface").and_then(Value::as_u64) == index;
        self.list("ips").filter(on_it).filter_map(address)
    }

    fn list(&self, name: &str) -> impl Iterator<Item = &Value> {
        self.result.get(name).and_then(Value::as_array).into_iter().flatten()
    }
}

fn address(ip: &Value) -> Option<IpAddr> {
    ip.get("address")?.as_str()?.split('/').next()?.parse().ok()
}

fn first_configuration() -> Option<Vec<u8>> {
    let mut files: Vec<_> = fs::read_dir(CONF_DIR).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.extension().is_some_and(|ext| ext == "conflist" || ext == "conf" || ext == "json"));
    files.sort();
    fs::read(files.first()?).ok()
}
