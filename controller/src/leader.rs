//! The leader's work: watches, and the workers that they wake.

mod hand_over;
pub(crate) mod lease;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use channel::Client as ChannelClient;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use oci::{Budget, Oci};
use resident::args::Toggle;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tunables::LeaderTerm;
use vcn::Ocid;

use crate::args::Pace;
use crate::attachment::apply::objects::KubeObjects;
use crate::attachment::mark::Mark;
use crate::attachment::observe::pod_network::KubePodNetworks;
use crate::attachment::worker::{AttachmentWorker, WorkerContext};
use crate::cluster::client::{self, READING};
use crate::cluster::events::Events;
use crate::cluster::stop_switch::{self, StopSwitch};
use crate::cluster::store::{Store, follow_attachments, follow_nodes, follow_profiles};
use crate::fleet;
use crate::fleet::host_events::HostEvents;
use crate::fleet::plugin_states::PluginStates;
use crate::fleet::run::FleetMember;
use crate::fleet::shared::SharedRoster;
use crate::leader::hand_over::HandOver;
use crate::leader_context::LeaderContext;
use crate::network_test::channel_agents::ChannelAgents;
use crate::network_test::probe_pods::ProbePods;
use crate::network_test::{AT_ONCE, NetworkTests};
use crate::node_policy::files::FilePods;
use crate::node_policy::run::{DocumentOrigin, Growths, NodePolicies};
use crate::node_task::run::TaskRunner;
use crate::node_task::{Reboots, TaskContext};
use crate::profile::node_pools::NodePoolReader;
use crate::profile::profiles::{GRACE, Profiles, ROUND};
use crate::report::metrics::{FleetCensus, Snapshot};
use crate::settings::Settings;
use crate::status_server::{Role, StatusServer};
use crate::work::{self, Work};
use backoff::chance;

/// The namespace whose uid identifies the cluster, by convention: it cannot be deleted.
pub(crate) const SYSTEM: &str = "kube-system";
/// The deadline of one request to the API server.
const ANSWER: Duration = Duration::from_secs(30);

pub(crate) struct Leader {
    /// The API server, through a client without retries.
    pub client: Client,
    pub cloud: Oci,
    /// The name of this process.
    pub identity: String,
    pub status_server: Arc<StatusServer>,
    pub settings: Settings,
    pub member: FleetMember,
    pub term: LeaderTerm,
}

/// Works until the Lease is lost, or returns when another replica should lead.
///
/// # Errors
/// When a task ended that should not.
pub(crate) async fn run(leader: Leader) -> anyhow::Result<()> {
    let Leader { client, cloud, identity, status_server, settings, member, term } = leader;
    let metrics = status_server.metrics.clone();
    let cluster = cluster_id(&client, settings.cluster_id.clone()).await;
    let mark = Mark::new(cluster.clone());
    let patient = client::patient(&client, metrics.clone(), READING);
    let store = Arc::new(Store::new(status_server.watches.clone()));
    let work = Work::default();
    let (events, writer) = Events::new(metrics.clone());
    let leader = LeaderContext::new(&client, &patient, &store, &metrics, events).with_repair(settings.oke_repair());
    let (budget, oci_host) = (cloud.budget().clone(), cloud.endpoint().host());
    let (profile_tasks, node_pools) = leader.profiles(&cloud);
    let objects = KubeObjects::new(patient.clone(), KubePodNetworks::new(&client, metrics.clone()));
    let context = leader.worker_context(mark, settings.pace, budget.clone());
    let roster = Arc::new(SharedRoster::new(settings.poll_limits()));
    let plugin_states = leader.plugin_states(&cloud, &roster, &settings);
    let host_events = leader.host_events(&cloud, &roster, &settings);
    let node_tasks = leader.node_tasks(&cloud, &member, &roster, &settings);
    let worker = Arc::new(AttachmentWorker::new(cloud, objects, context));
    let probe_pods = Arc::new(ProbePods::new(&patient, &settings.lease.namespace, identity.clone(), metrics));
    let network_tests = leader.network_tests(channel_agents(&member, &roster, &probe_pods), &settings, oci_host);
    let policies = leader.node_policies(&member, &node_tasks.context, &settings, DocumentOrigin { cluster, term });
    let policy_views = policies.shared.clone();
    measure(&status_server, &work, &store, budget, roster.clone());
    let (attachments_read, mut attachments) = watch::channel(false);
    let (nodes_read, mut nodes) = watch::channel(false);
    let (profiles_read, mut profiles) = watch::channel(false);
    let all_nodes = nodes.clone();
    let hand_over = leader.hand_over(&settings, &identity, &node_tasks);
    let operations = node_operations(&leader, &member.namespace, policies, node_tasks, nodes.clone());
    let watched = worker.clone();
    let working = async {
        all_read([&mut attachments, &mut nodes, &mut profiles]).await?;
        note_working(&status_server, &store);
        // Cancel-safe: whichever ends first ends the process.
        tokio::select! {
            () = work::run(work.clone(), worker, settings.workers.into(), chance) => bail!("the workers ended"),
            () = watched.scan_compartments(chance, |instance| work.now(instance)) => bail!("the compartment scan ended"),
            () = probe_pods.delete_orphans() => bail!("the task that deletes probe Pods ended"),
            () = plugin_states.run(), if settings.plugin_states == Toggle::On => bail!("the task that reads plugins' states ended"),
            () = host_events.run(), if !host_events.is_off() => bail!("the task that reads Oracle's reports ended"),
            () = operations => bail!("the tasks of NodePolicies and NodeTasks ended"),
            () = network_tests.run() => bail!("the watch of NetworkTests ended"),
            () = hand_over.wait() => Ok(()),
            () = node_pools.run() => bail!("the task that reads node pools ended"),
            () = profile_tasks.run() => bail!("the task that serves VnicProfiles ended"),
        }
    };
    let touched = |instance: Ocid| {
        let (lane, after) = watched.due(&instance, chance());
        work.enqueue(instance, lane, after);
    };
    // Cancel-safe: whichever ends first ends the process.
    tokio::select! {
        () = follow_attachments(patient.clone(), store.clone(), attachments_read, touched) => bail!("the watch of VnicAttachments ended"),
        () = follow_nodes(patient.clone(), store.clone(), nodes_read, touched) => bail!("the watch of Nodes ended"),
        () = follow_profiles(patient, store.clone(), profiles_read) => bail!("the watch of VnicProfiles ended"),
        // It retries by itself, and counts each attempt.
        () = writer.run(client, identity, chance) => bail!("the task that writes events ended"),
        () = fleet::run::run(member, leader, roster, all_nodes, policy_views) => bail!("the tasks of the fleet ended"),
        ended = working => ended,
    }
}

/// NodePolicies and NodeTasks, with the stop switch that both honor; never ends. `nodes` becomes true when all Nodes are known.
fn node_operations(
    leader: &LeaderContext,
    namespace: &str,
    policies: NodePolicies,
    tasks: TaskRunner,
    nodes: watch::Receiver<bool>,
) -> impl Future<Output = ()> + use<> {
    let (client, namespace) = (leader.client.clone(), namespace.to_owned());
    let (switch, stopped) = watch::channel(StopSwitch::default());
    async move {
        tokio::join!(
            stop_switch::follow(client, &namespace, switch),
            policies.run(nodes.clone(), stopped.clone()),
            tasks.run(nodes, stopped)
        );
    }
}

/// The agents, as network tests request probes of them.
fn channel_agents(member: &FleetMember, roster: &Arc<SharedRoster>, pods: &Arc<ProbePods>) -> ChannelAgents {
    let client = ChannelClient::new(member.identity.clone());
    ChannelAgents { client, roster: roster.clone(), began: Instant::now(), pods: pods.clone() }
}

fn note_working(status_server: &StatusServer, store: &Store) {
    status_server.set_role(Role::Working);
    tracing::info!(event = "controller.working", attachments = store.attachments().iter().count());
}

/// Waits until these lists are complete.
async fn all_read(lists: [&mut watch::Receiver<bool>; 3]) -> anyhow::Result<()> {
    for read in lists {
        read.wait_for(|is_read| *is_read).await.context("reading the objects to reconcile")?;
    }
    Ok(())
}

impl LeaderContext {
    fn profiles(&self, cloud: &Oci) -> (Profiles, NodePoolReader) {
        let (cloud, store, nominated) = ((**cloud).clone(), self.store.clone(), watch::Sender::default());
        let reader = NodePoolReader { cloud, store, nominated: nominated.subscribe(), chance };
        let profiles = Profiles {
            client: self.client.clone(),
            store: self.store.clone(),
            nominated,
            metrics: self.metrics.clone(),
            events: self.events.clone(),
            grace: GRACE,
            round: ROUND,
            chance,
        };
        (profiles, reader)
    }

    fn plugin_states(&self, cloud: &Oci, roster: &Arc<SharedRoster>, settings: &Settings) -> PluginStates {
        PluginStates {
            cloud: (**cloud).clone(),
            store: self.store.clone(),
            roster: roster.clone(),
            interval: settings.agent_poll,
        }
    }

    fn host_events(&self, cloud: &Oci, roster: &Arc<SharedRoster>, settings: &Settings) -> HostEvents {
        HostEvents {
            cloud: (**cloud).clone(),
            store: self.store.clone(),
            roster: roster.clone(),
            tenancy: settings.host_health_tenancy.clone(),
            compartments: settings.maintenance_compartments.clone().unwrap_or_default(),
            client: self.plain.clone(),
            repair: self.repair.clone(),
        }
    }

    fn worker_context(&self, mark: Mark, pace: Pace, budget: Budget) -> WorkerContext {
        WorkerContext {
            store: self.store.clone(),
            mark,
            events: self.events.clone(),
            metrics: self.metrics.clone(),
            pace,
            budget,
        }
    }

    fn node_policies(
        &self,
        member: &FleetMember,
        tasks: &TaskContext,
        settings: &Settings,
        origin: DocumentOrigin,
    ) -> NodePolicies {
        NodePolicies {
            client: self.client.clone(),
            channel: ChannelClient::new(member.identity.clone()),
            store: self.store.clone(),
            roster: tasks.roster.clone(),
            events: self.events.clone(),
            metrics: self.metrics.clone(),
            shared: Arc::default(),
            file_pods: FilePods {
                client: self.client.clone(),
                namespace: member.namespace.clone(),
                identity: settings.lease.identity.clone().unwrap_or_default(),
                grants: settings.file_grants(),
            },
            growths: Growths { is_enabled: tasks.enabled.is_any, tasks: tasks.growths.clone() },
            origin,
        }
    }

    fn hand_over(&self, settings: &Settings, identity: &str, tasks: &TaskRunner) -> HandOver {
        let requested = tasks.context.reboots.hand_over.clone();
        HandOver::new(&self.client, &settings.lease.namespace, self.store.clone(), identity.to_owned(), requested)
    }

    fn node_tasks(
        &self,
        cloud: &Oci,
        member: &FleetMember,
        roster: &Arc<SharedRoster>,
        settings: &Settings,
    ) -> TaskRunner {
        TaskRunner {
            context: TaskContext {
                client: self.client.clone(),
                channel: ChannelClient::new(member.identity.clone()),
                cloud: cloud.clone(),
                store: self.store.clone(),
                roster: roster.clone(),
                events: self.events.clone(),
                metrics: self.metrics.clone(),
                namespace: member.namespace.clone(),
                identity: settings.lease.identity.clone().unwrap_or_default(),
                enabled: settings.enabled_actions(),
                reboots: Arc::new(Reboots::new(self.plain.clone(), self.repair.clone())),
                ages: Arc::default(),
                growths: Arc::default(),
            },
        }
    }

    fn network_tests(
        &self,
        agents: ChannelAgents,
        settings: &Settings,
        oci_host: Option<String>,
    ) -> NetworkTests<ChannelAgents> {
        NetworkTests {
            client: self.client.clone(),
            store: self.store.clone(),
            agents: Arc::new(agents),
            metrics: self.metrics.clone(),
            turns: Semaphore::new(AT_ONCE),
            allowed: settings.network_test_targets,
            services: settings.service_networks.0.clone(),
            oci_host,
        }
    }
}

/// Lets the metrics read what changes all the time.
fn measure(
    status_server: &StatusServer,
    work: &Work<Ocid>,
    store: &Arc<Store>,
    budget: Budget,
    roster: Arc<SharedRoster>,
) {
    let (work, store, watches) = (work.clone(), store.clone(), status_server.watches.clone());
    status_server.metrics.set_source(move || Snapshot {
        depth: work.depth(),
        census: store.attachments().census(),
        budget: budget.state(),
        watches: watches.behind(),
        fleet: FleetCensus::of(&roster.lock(), Instant::now()),
    });
}

/// The cluster's name in tags: as configured, or the uid of kube-system. Retries until there is an answer, through a client
/// without its own backoff.
pub(crate) async fn cluster_id(client: &Client, configured: Option<String>) -> String {
    if let Some(id) = configured {
        return id;
    }
    let api: Api<Namespace> = Api::all(client.clone());
    loop {
        let problem = match timeout(ANSWER, api.get(SYSTEM)).await {
            Ok(Ok(namespace)) => match namespace.metadata.uid {
                Some(uid) => return uid,
                None => "it has no uid".to_owned(),
            },
            Ok(Err(error)) => resident::logging::chain(&error),
            Err(_) => format!("no answer within {ANSWER:?}"),
        };
        tracing::warn!(event = "cluster.unknown", problem, "reading the namespace {SYSTEM} (or set CLUSTER_ID)");
        sleep(Duration::from_secs(5)).await;
    }
}
