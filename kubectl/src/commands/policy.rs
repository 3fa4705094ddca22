//! `policy`: NodePolicies, and of one which node has which revision, and why not.

mod one;
mod summary;

use anyhow::Context as _;
use command::page::Page;
use serde::Serialize;
use tunables::view::{POLICIES_PATH, PolicyView};

use crate::answer::{Answer, Exit, Style};
use crate::cluster::Cluster;
use crate::commands::stop::StopState;
use crate::failure::words;
use crate::leader;
use crate::table::{count, cut, or_dash};
pub(crate) use one::OnePolicy;
pub(crate) use summary::PolicySummary;
use summary::show_steps;

/// The most characters of a message in a line.
const MESSAGE: usize = 80;

/// All policies, or one with its nodes.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Policies {
    All(PolicyList),
    One(Box<OnePolicy>),
}

/// All policies, as the API server has them.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PolicyList {
    #[serde(flatten)]
    pub stop: StopState,
    /// Those that are not done first, then by name.
    pub policies: Vec<PolicySummary>,
    /// The names of objects that a later version wrote.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

/// Reads all of them, or one.
pub(crate) async fn run(cluster: &Cluster, name: Option<&str>) -> anyhow::Result<Policies> {
    let stop = StopState::read(cluster).await;
    let Some(name) = name else {
        let (objects, unreadable) = cluster.policies().await?;
        return Ok(Policies::All(PolicyList::new(stop, objects.iter().map(PolicySummary::of).collect(), unreadable)));
    };
    let view = leader::get::<PolicyView>(cluster, &format!("{POLICIES_PATH}/{name}")).await;
    // Without a kubeconfig, --view-url still shows what the leader has.
    let object = cluster.object(name).await;
    match (object, view) {
        (Ok(None), _) => anyhow::bail!("there is no NodePolicy {name}"),
        (Ok(Some(object)), Ok(view)) => Ok(OnePolicy::new(stop, PolicySummary::of(&object), Ok(view))),
        (Ok(Some(object)), Err(error)) => Ok(OnePolicy::new(stop, PolicySummary::of(&object), Err(words(&error)))),
        (Err(_), Ok(view)) => Ok(OnePolicy::new(stop, PolicySummary::of_view(&view), Ok(view))),
        (Err(error), Err(why)) => {
            Err(error).with_context(|| format!("the controller is not reachable ({}), nor the object", words(&why)))
        }
    }
    .map(|one| Policies::One(Box::new(one)))
}

impl PolicyList {
    pub(crate) fn new(stop: StopState, mut policies: Vec<PolicySummary>, unreadable: Vec<String>) -> Self {
        policies.sort_by(|a, b| (a.is_fine(), &a.name).cmp(&(b.is_fine(), &b.name)));
        Self { stop, policies, unreadable }
    }
}

impl Answer for Policies {
    fn exit(&self) -> Exit {
        match self {
            Self::All(list) => list.exit(),
            Self::One(one) => one.exit(),
        }
    }

    fn show(&self, page: &mut Page, style: Style) {
        match self {
            Self::All(list) => list.show(page, style),
            Self::One(one) => one.show(page, style),
        }
    }
}

impl Answer for PolicyList {
    fn exit(&self) -> Exit {
        let is_fine = self.stop.reason.is_none() && self.unreadable.is_empty();
        if is_fine && self.policies.iter().all(PolicySummary::is_fine) { Exit::Fine } else { Exit::Problem }
    }

    fn show(&self, page: &mut Page, style: Style) {
        self.stop.show(page);
        let head = [
            "NODEPOLICY",
            "MODE",
            "PROGRESS",
            "APPLIED",
            "NODES",
            "TARGET",
            "FAILED",
            "DRIFTED",
            "CREATED BY",
            "MESSAGE",
        ];
        if !self.policies.is_empty() {
            page.columns(&head, self.policies.iter().map(|policy| row(policy, style)));
            page.line("");
        }
        page.line(count(self.policies.len(), "NodePolicy").replace("Policys", "Policies"));
        if !self.unreadable.is_empty() {
            let names = self.unreadable.join(", ");
            page.line(format_args!("A later version wrote these; update this program to read them: {names}"));
        }
        show_steps(page, self.policies.iter().flat_map(PolicySummary::reasons));
        self.stop.show_error(page);
    }
}

fn row(policy: &PolicySummary, style: Style) -> Vec<String> {
    let counts = policy.nodes;
    let number = |number: u32| number.to_string();
    vec![
        policy.name.clone(),
        policy.mode.clone(),
        or_dash(&policy.progress),
        or_dash(&policy.applied),
        number(counts.matched),
        number(counts.target),
        number(counts.failed),
        number(counts.drifted_items),
        or_dash(&policy.created_by),
        cut(policy.message(), MESSAGE, style),
    ]
}
