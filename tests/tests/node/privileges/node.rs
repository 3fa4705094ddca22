//! A node of an emulated VCN for one test, with a NativePodNetwork and a VNIC for pods.

use std::process::Output;
use std::sync::Arc;

use sandbox::{Agent, Container, Image, Node, NodeSpec, NpnShape, SubnetSpec, Vcn, VnicSpec};
use tests::built::bin_dir;

/// A node as it boots.
pub(crate) struct World {
    _vcn: Vcn,
    pub(crate) node: Arc<Node>,
}

impl World {
    pub(crate) fn new() -> Self {
        let vcn = Vcn::builder()
            .subnet(SubnetSpec::new("nodes", &["10.0.0.0/24"]))
            .subnet(SubnetSpec::new("pods", &["10.0.32.0/24"]))
            .node(
                NodeSpec::virtual_machine("node", "nodes")
                    .metadata("oke-native-pod-networking", "true")
                    .vnic(VnicSpec::for_pods("pods", 3)),
            )
            .start()
            .unwrap();
        let node = vcn.node("node").unwrap();
        sandbox::publish_native_pod_network(&vcn, &node, NpnShape::PerFamily).unwrap();
        Self { _vcn: vcn, node }
    }

    /// The agent, in a container like the manifest's.
    pub(crate) fn start(&self, container: &Container) -> Agent {
        Agent::start_in(container, &self.node, &bin_dir()).unwrap()
    }

    /// The same, until the node is ready.
    pub(crate) fn ready(&self, container: &Container) -> Agent {
        let mut agent = self.start(container);
        agent.wait_ready(&self.node).unwrap();
        agent
    }

    /// What runs in a container to its end: its status, and all that it says.
    pub(crate) fn run(&self, container: &Container) -> (i32, String) {
        let image = Image::of_programs(&bin_dir());
        let output: Output = self.node.container(container, &image).unwrap().output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap() + std::str::from_utf8(&output.stderr).unwrap();
        (output.status.code().unwrap(), text)
    }

    pub(crate) fn sh(&self, script: &str) -> String {
        let output = self.node.command("sh").args(["-c", script]).output().unwrap();
        String::from_utf8(output.stdout).unwrap() + std::str::from_utf8(&output.stderr).unwrap()
    }

    /// All that the agent said so far.
    pub(crate) fn log(&self) -> String {
        Agent::log(&self.node).unwrap()
    }
}
