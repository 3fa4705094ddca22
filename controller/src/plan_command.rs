//! `oke-node-controller plan`: prints what the controller would do now. It cannot change anything: its client of the API
//! server only lists, and OCI is read through [`oci::CloudView`].

mod cloud;
mod future;
mod reader;
mod report;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use resident::args::Format;
use resident::logging::chain;
use tokio::time::{Instant, timeout};
use vcn::Ocid;

use crate::args::PlanArgs;
use crate::attachment::mark::Mark;
use crate::cloud::{NoClient, connect};
use crate::cluster::client;
use crate::cluster::store::{PoolAnswer, Store};
use crate::profile::node_pools::read_node_pool;
use crate::profile::plan::removal::{DeletionGrace, UnwantedObjects};
use crate::profile::plan::step::Step;
use crate::profile::plan::{Plan, plan};
use crate::profile::profiles::GRACE;
use crate::profile::select::observed::Observed;
use crate::profile::select::selection::{Selections, select};
use crate::report::metrics::Metrics;
use crate::settings::Settings;
use cloud::CloudPlan;
use future::Objects;
use reader::Reader;
use report::{Report, entries};

/// For all reads from the API server, and for all from OCI.
const DEADLINE: Duration = Duration::from_mins(2);

/// A refused page is retried for this long: less than the deadline, so that a lasting refusal is reported as it is.
const PATIENCE: Duration = Duration::from_secs(20);

/// Reads everything and prints the plan.
///
/// # Errors
/// When something cannot be read in time. The rest is printed all the same.
pub(crate) async fn run(settings: Settings, args: PlanArgs) -> anyhow::Result<()> {
    let reader = Reader::new(&client::connect().await?, PATIENCE);
    let store = timeout(DEADLINE, reader.all()).await.context("cannot read from the API server in time")??;
    read_node_pools(&settings, &store).await;
    let observed = Observed::of(&store);
    let finalizers = steps_of(&observed, |step| matches!(step, Step::AddFinalizer(_)));
    let observed = future::with_finalizers(&observed);
    let selections = select(&observed);
    let plan = now(&observed, &selections);
    let is_paused = |profile: &str| selections.profiles.get(profile).is_some_and(|it| it.profile.spec.paused);
    let paused = steps_of(&future::unpaused(&observed), |step| step.profile().is_some_and(is_paused));
    let steps: Vec<Step> = finalizers.into_iter().chain(plan.steps.iter().cloned()).collect();
    let mut objects = future::after(observed.attachments.iter(), &steps);
    if let Some(chosen) = chosen(&args, &observed)? {
        objects.retain(|instance, _| chosen.contains(instance));
    }
    let cloud = match objects.is_empty() {
        true => Ok(CloudPlan::default()),
        false => in_the_cloud(&settings, &reader, &objects).await,
    };
    let (cloud, problem) = match cloud {
        Ok(CloudPlan { lines, unread: 0 }) => (lines, None),
        Ok(CloudPlan { lines, unread }) => {
            (lines, Some(anyhow!("{unread} instances were not read within {DEADLINE:?}: choose some with --node")))
        }
        Err(problem) => (Vec::new(), Some(problem)),
    };
    let report = Report {
        objects: entries(&steps),
        later: entries(&plan.later),
        when_not_paused: entries(&paused),
        cloud,
        cloud_read: problem.is_none(),
        problems: &plan.problems,
    };
    let text = match args.output.output {
        Format::Table => report.to_string(),
        Format::Json => serde_json::to_string_pretty(&report).context("writing JSON")? + "\n",
    };
    // `… | head` closes the pipe, which is not a failure.
    let _ = std::io::stdout().write_all(text.as_bytes());
    problem.map_or(Ok(()), Err)
}

/// Reads the node pools that decide which nodes profiles select. The node pool of an instance that is not read in time stays unknown.
async fn read_node_pools(settings: &Settings, store: &Store) {
    let observed = Observed::of(store);
    let instances: Vec<Ocid> = select(&observed).nominated.into_keys().collect();
    if instances.is_empty() {
        return;
    }
    let answers = match connect(&settings.oci, Arc::new(Metrics::default())).await {
        Ok(oci) => {
            let reads = instances.iter().map(|instance| {
                let oci = oci.clone();
                async move { (instance.clone(), read_node_pool(&oci, instance).await) }
            });
            cloud::within(reads, Instant::now() + DEADLINE).await
        }
        Err(error) => {
            let why = PoolAnswer::Unreadable(chain(error.into_error().as_ref()));
            instances.into_iter().map(|instance| (instance, why.clone())).collect()
        }
    };
    store
        .change_pools(|pools| answers.into_iter().fold(false, |_, (instance, answer)| pools.record(&instance, answer)));
}

/// This process cannot know for how long something was unwanted: it prints later steps without their time.
fn now<'a>(observed: &'a Observed, selections: &'a Selections<'a>) -> Plan<'a> {
    let grace = DeletionGrace { unwanted: &UnwantedObjects::default(), period: GRACE, now: Instant::now() };
    plan(observed, selections, grace)
}

/// The chosen steps of a plan, and those that come later.
fn steps_of(observed: &Observed, is_chosen: impl Fn(&Step) -> bool) -> Vec<Step> {
    let selections = select(observed);
    let plan = now(observed, &selections);
    plan.steps.into_iter().chain(plan.later).filter(|step| is_chosen(step)).collect()
}

/// The instances to query in OCI, if not all.
fn chosen(args: &PlanArgs, observed: &Observed) -> anyhow::Result<Option<BTreeSet<Ocid>>> {
    let mut chosen: BTreeSet<Ocid> = args.instance.iter().cloned().collect();
    for name in &args.node {
        let node = observed.nodes.iter().find(|node| node.name == *name);
        match node.and_then(|node| node.instance.clone()) {
            Some(instance) => drop(chosen.insert(instance)),
            None => bail!("there is no Node {name} that is an OCI instance"),
        }
    }
    Ok((!chosen.is_empty()).then_some(chosen))
}

async fn in_the_cloud(settings: &Settings, reader: &Reader, objects: &Objects) -> anyhow::Result<CloudPlan> {
    let mark = Mark::new(match &settings.cluster_id {
        Some(id) => id.clone(),
        None => reader.cluster().await?,
    });
    let oci = connect(&settings.oci, Arc::new(Metrics::default())).await.map_err(NoClient::into_error)?;
    Ok(cloud::look(&oci, reader.pod_networks(), &mark, objects, Instant::now() + DEADLINE).await)
}
