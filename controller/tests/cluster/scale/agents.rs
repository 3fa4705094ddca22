//! The watches that agents hold: each of the VnicAttachments of its own instance, with the rights of the shipped account, opened
//! again before the API server closes it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::VnicAttachment;
use futures::StreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _};
use kube_harness::{ApiServer, Bound, ServiceAccount};
use tokio::task::JoinSet;

use crate::paper;
use crate::scene::manifest;

/// Watches that are opened at the same time.
const AT_ONCE: usize = 24;

/// How long one lasts, in seconds: an agent's last some minutes.
const LASTS: u32 = 290;

/// Running watches; they end with this.
pub(super) struct Agents {
    counts: Arc<Counts>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Counts {
    /// Agents that were answered.
    open: AtomicUsize,
    /// Objects that an agent received for the first time.
    objects: AtomicUsize,
    /// Events of all agents after their first answers, and objects that were listed again.
    events: AtomicUsize,
}

impl Agents {
    /// One for each instance. Returns when each has its first answer.
    pub(super) async fn start(server: &ApiServer, instances: usize) -> Self {
        server.apply(&manifest("daemonset.yaml")).await.unwrap();
        let account = ServiceAccount::new("oke-node-manager", "oke-node-agent");
        let client = server.client(&server.token(&account, &Bound::Nothing).await.unwrap()).unwrap();
        let (counts, mut tasks) = (Arc::<Counts>::default(), JoinSet::new());
        for number in 0..instances {
            tasks.spawn(watch(client.clone(), number, counts.clone()));
            while counts.open.load(Ordering::Relaxed) + AT_ONCE <= number {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        }
        let agents = Self { counts, _tasks: tasks };
        while agents.counts.open.load(Ordering::Relaxed) < instances {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        agents
    }

    /// How many objects they have received together, each once.
    pub(super) fn objects(&self) -> usize {
        self.counts.objects.load(Ordering::Relaxed)
    }

    /// How many events they have received together.
    pub(super) fn events(&self) -> usize {
        self.counts.events.load(Ordering::Relaxed)
    }
}

async fn watch(client: Client, number: usize, counts: Arc<Counts>) {
    let own = format!("spec.instanceId={}", paper::instance(number));
    let config = watcher::Config::default().any_semantic().timeout(LASTS).fields(&own);
    let mut events = watcher::watcher(Api::<VnicAttachment>::all(client), config).boxed();
    let (mut known, mut is_open) = (HashSet::new(), false);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => {}
            Ok(Event::InitDone) if !is_open => {
                is_open = true;
                counts.open.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Event::InitDone) => {}
            Ok(Event::InitApply(object) | Event::Apply(object) | Event::Delete(object)) => {
                assert_eq!(object.spec.instance_id.to_string(), paper::instance(number), "another node's object");
                counts.events.fetch_add(1, Ordering::Relaxed);
                if known.insert(object.name_any()) {
                    counts.objects.fetch_add(1, Ordering::Relaxed);
                }
            }
            // As an agent does, but at once: the test waits for it.
            Err(error) => println!("the watch of agent {number}: {error}"),
        }
    }
}
