//! The agent's code, called by a test and not by the agent's program: in the very container that the program gets. Nothing
//! else here may call it; house-lint checks that.

use std::cell::RefCell;
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use oke_node_agent::Args;
use oke_node_agent::facts::node_facts::NodeFacts;
use oke_node_agent::facts::reconcile_report::{Cause, ReconcileReport};
use oke_node_agent::metrics::Metrics;
use oke_node_agent::reconcile::Reconciler;
use oke_node_agent::reconcile::drift_hints::DriftHints;
use oke_node_agent::settings::Settings;
use oke_node_agent::sources::poller;
use oke_node_agent::sources::poller::ClusterSources;
use sandbox::Container;
use serde_json::Value;

use crate::metadata::vnic;
use crate::node::Node;

impl Node {
    /// The settings of the agent: the manifest's environment, and the options of these tests.
    pub(crate) fn settings(&self, more: &[&str]) -> Arc<Settings> {
        let manifest = Container::node_agent().unwrap();
        // A variable's option has its name.
        let said = manifest.environment().iter().map(|(name, value)| {
            let option = format!("--{}", name.to_lowercase().replace('_', "-"));
            (option, value.clone())
        });
        // An empty variable is not set.
        let said = said.filter(|(option, value)| !value.is_empty() && !more.contains(&option.as_str()));
        let said = said.flat_map(|(option, value)| [option, value]);
        let words = ["oke-node-agent".to_owned()].into_iter().chain(said).chain(self.options(more));
        let words = words.chain(more.iter().map(|word| (*word).to_owned()));
        Arc::new(Settings::new(Args::try_parse_from(words).unwrap().options).unwrap())
    }

    /// Calls code in the agent's container.
    fn call<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.call_in(&self.container(), work)
    }

    /// The same in another one on this node.
    pub(crate) fn call_in<T: Send>(&self, container: &Container, work: impl FnOnce() -> T + Send) -> T {
        self.inside(|| container.run(&self.image(), work).unwrap())
    }

    /// What the sources of a node say, polled as the agent does.
    pub(crate) fn world(&self, vnics: Vec<Value>, settings: &Settings) -> NodeFacts {
        self.metadata.set_vnics(vnics);
        self.call(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let imds = imds::Imds::new(&self.metadata.base_url(), imds::POLICY).unwrap();
                let mut world = NodeFacts::default();
                poller::poll(&mut world, &imds, &ClusterSources::files(settings), settings, &Metrics::default()).await;
                world
            })
        })
    }

    /// One that starts here.
    pub(crate) fn reconciler(&self, settings: &Arc<Settings>) -> Reconciler {
        self.call(|| Reconciler::new(Arc::clone(settings)).unwrap())
    }

    pub(crate) fn pass(&self, reconciler: &mut Reconciler, world: &NodeFacts, cause: Cause) -> ReconcileReport {
        self.timed_pass(reconciler, world, cause).0
    }

    /// The same, and how long it took; making a container is none of it.
    pub(crate) fn timed_pass(
        &self,
        reconciler: &mut Reconciler,
        world: &NodeFacts,
        cause: Cause,
    ) -> (ReconcileReport, Duration) {
        self.call(|| {
            let begun = Instant::now();
            (reconciler.reconcile(world, cause), begun.elapsed())
        })
    }

    /// A reconcile in a container that lacks something.
    pub(crate) fn pass_in(
        &self,
        container: &Container,
        reconciler: &mut Reconciler,
        world: &NodeFacts,
        cause: Cause,
    ) -> ReconcileReport {
        self.call_in(container, || reconciler.reconcile(world, cause))
    }

    /// Whether hints about these addresses cause a reconcile, once they have settled.
    pub(crate) fn needs_reconcile(&self, reconciler: &mut Reconciler, addresses: Vec<IpAddr>) -> bool {
        let hints = DriftHints { addresses: addresses.into_iter().collect(), ..DriftHints::default() };
        self.call(|| {
            reconciler.needs_reconcile(hints, &HashSet::new());
            reconciler.needs_reconcile(DriftHints::default(), &HashSet::new())
        })
    }

    /// The first pass of an agent whose container lacks something.
    pub(crate) fn first_pass_in(
        &self,
        container: &Container,
        settings: &Arc<Settings>,
        world: &NodeFacts,
    ) -> ReconcileReport {
        self.call_in(container, || Reconciler::new(Arc::clone(settings)).unwrap().reconcile(world, Cause::Start))
    }
}

/// A node whose sources list the primary VNIC and these, with a reconciler that has not run.
pub(crate) struct Scene {
    pub(crate) node: Node,
    pub(crate) settings: Arc<Settings>,
    pub(crate) facts: NodeFacts,
    pub(crate) reconciler: RefCell<Reconciler>,
}

impl Scene {
    /// The VNICs are plugged in as ens5, ens6, …; one of the name `pods` is for pods.
    pub(crate) fn new(vnics: &[Value]) -> Self {
        Self::with_options(vnics, &[])
    }

    pub(crate) fn with_options(vnics: &[Value], options: &[&str]) -> Self {
        let node = Node::new();
        for at in 0..vnics.len() {
            node.plug(&format!("ens{}", 5 + at), 33 + u8::try_from(at).unwrap());
        }
        match vnics.iter().find(|vnic| vnic["vnicId"].as_str().is_some_and(|id| id.ends_with(".pods"))) {
            Some(pods) if pods.get("ipv6Addresses").is_some() => node.publish_dual_stack(&[("pods", 33)]),
            Some(_) => node.publish("SUCCESS", &[("pods", 33)]),
            None => {}
        }
        let settings = node.settings(options);
        let facts = facts(&node, vnics, &settings);
        let reconciler = RefCell::new(node.reconciler(&settings));
        Self { node, settings, facts, reconciler }
    }

    /// From now on the sources list these VNICs.
    pub(crate) fn list(&mut self, vnics: &[Value]) {
        self.facts = facts(&self.node, vnics, &self.settings);
    }

    /// From now on another agent runs.
    pub(crate) fn restart(&self) {
        self.reconciler.replace(self.node.reconciler(&self.settings));
    }

    pub(crate) fn reconcile(&self, cause: Cause) -> ReconcileReport {
        self.node.pass(&mut self.reconciler.borrow_mut(), &self.facts, cause)
    }
}

fn facts(node: &Node, vnics: &[Value], settings: &Settings) -> NodeFacts {
    node.world([&[vnic("primary", 10)], vnics].concat(), settings)
}

/// The changes of a reconcile.
pub(crate) fn texts(pass: &ReconcileReport) -> Vec<&str> {
    pass.changes.iter().map(|change| change.text.as_str()).collect()
}
