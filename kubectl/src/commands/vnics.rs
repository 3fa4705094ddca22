//! `vnics`: VnicAttachments with their instance, VNIC and state, as the API server has them.

use std::collections::BTreeMap;

use anyhow::Context as _;
use api::condition::{self, ConditionType};
use api::{AttachmentReason, NodeReport, Purpose, Reason as _, VnicAttachment, instance_of};
use command::page::Page;
use serde::Serialize;
use vcn::Ocid;

use crate::answer::{Answer, Exit, Style};
use crate::args::VnicsArgs;
use crate::cluster::{Attachments, Cluster};
use crate::selection::{SelectedNodes, selected};
use crate::table::{count, cut, ocid, or_dash};

/// The most characters of a message in a line.
const MESSAGE: usize = 80;
/// The largest number of VnicAttachments that are named per reason.
const NAMED: usize = 3;

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Vnics {
    /// Those that are not ready first, then by node and name.
    pub items: Vec<Vnic>,
    /// The names of objects that a later version wrote.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// Why they could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Vnic {
    /// Whether it is ready: True, False or Unknown.
    pub ready: String,
    /// The Node of its instance.
    pub node: String,
    pub name: String,
    pub instance: String,
    /// The VNIC, once it is attached.
    pub vnic: String,
    /// What its users call it.
    pub vnic_name: String,
    /// What it is for: Pods, Host or Attach.
    pub purpose: String,
    /// Shared or Exclusive, of a VNIC for single pods.
    pub mode: String,
    /// The reason of its condition Ready.
    pub reason: String,
    /// The message of its condition Ready.
    pub message: String,
    /// What the node's agent reports.
    pub node_report: String,
}

pub(crate) async fn run(cluster: &Cluster, args: &VnicsArgs) -> anyhow::Result<Vnics> {
    let Some(name) = &args.node else {
        return of_selected(cluster, selected(cluster, &args.selection).await?.as_ref()).await;
    };
    let found = cluster.node(name).await?.with_context(|| format!("there is no Node {name}"))?;
    let provider = found.spec.and_then(|spec| spec.provider_id).unwrap_or_default();
    let instance = instance_of(&provider).with_context(|| format!("finding the instance of Node {name}"))?;
    of_instance(cluster, &instance).await
}

/// Those of the selected Nodes' instances, or all.
pub(crate) async fn of_selected(cluster: &Cluster, nodes: Option<&SelectedNodes>) -> anyhow::Result<Vnics> {
    let mut found = cluster.attachments(None).await?;
    if let Some(nodes) = nodes {
        found.objects.retain(|object| nodes.has_instance(&object.spec.instance_id));
    }
    Ok(Vnics::of(found))
}

/// Those of an instance.
pub(crate) async fn of_instance(cluster: &Cluster, instance: &Ocid) -> anyhow::Result<Vnics> {
    cluster.attachments(Some(instance)).await.map(Vnics::of)
}

impl Vnics {
    /// In the order of the table.
    pub(crate) fn of(Attachments { objects, unreadable }: Attachments) -> Self {
        let mut items: Vec<Vnic> = objects.iter().map(Vnic::of).collect();
        items.sort_by(|a, b| (a.ready == "True", a).cmp(&(b.ready == "True", b)));
        Self { items, unreadable, error: None }
    }

    /// None, because they could not be read.
    pub(crate) fn unread(error: String) -> Self {
        Self { error: Some(error), ..Self::default() }
    }
}

impl Answer for Vnics {
    fn exit(&self) -> Exit {
        if self.is_read() && self.items.iter().all(|vnic| vnic.ready == "True") { Exit::Fine } else { Exit::Problem }
    }

    fn show(&self, page: &mut Page, style: Style) {
        self.show_table(page, style);
        for (reason, items) in self.problems() {
            let names: Vec<&str> = items.iter().take(NAMED).map(|vnic| vnic.name.as_str()).collect();
            let more = items.len().saturating_sub(NAMED);
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            page.line("");
            page.line(format_args!("{reason}: {}{more}", names.join(", ")));
            if let Some(message) = items.iter().map(|vnic| &vnic.message).find(|message| !message.is_empty()) {
                page.line(format_args!("     {message}"));
            }
            if let Some(step) = AttachmentReason::from_word(reason).map(AttachmentReason::to_do) {
                page.line(format_args!("     Next: {step}"));
            }
        }
    }
}

impl Vnics {
    /// Whether all of them could be read.
    pub(crate) fn is_read(&self) -> bool {
        self.error.is_none() && self.unreadable.is_empty()
    }

    /// Those that are not ready, by reason.
    fn problems(&self) -> BTreeMap<&str, Vec<&Vnic>> {
        let mut problems: BTreeMap<&str, Vec<&Vnic>> = BTreeMap::new();
        for vnic in self.items.iter().filter(|vnic| vnic.ready != "True") {
            let reason = if vnic.reason.is_empty() { AttachmentReason::Pending.as_str() } else { &vnic.reason };
            problems.entry(reason).or_default().push(vnic);
        }
        problems
    }

    pub(crate) fn show_table(&self, page: &mut Page, style: Style) {
        let head = [
            "VNICATTACHMENT",
            "NODE",
            "INSTANCE",
            "VNIC",
            "NAME",
            "PURPOSE",
            "MODE",
            "READY",
            "REASON",
            "NODE REPORT",
            "MESSAGE",
        ];
        if !self.items.is_empty() {
            page.columns(&head, self.items.iter().map(|vnic| vnic.row(style)));
            page.line("");
        }
        let ready = self.items.iter().filter(|vnic| vnic.ready == "True").count();
        match &self.error {
            Some(error) => page.line(format_args!("VnicAttachments cannot be read: {error}")),
            None => page.line(format_args!("{}, {ready} ready", count(self.items.len(), "VnicAttachment"))),
        }
        if !self.unreadable.is_empty() {
            let names = self.unreadable.join(", ");
            page.line(format_args!("A later version wrote these; update this program to read them: {names}"));
        }
    }
}

impl Vnic {
    fn of(object: &VnicAttachment) -> Self {
        let status = object.status.clone().unwrap_or_default();
        let purpose = object.spec.vnic.purpose;
        let ready = condition::find(&status.conditions, ConditionType::Ready);
        let of_ready = |field: fn(&api::Condition) -> &String| ready.map(field).cloned().unwrap_or_default();
        Self {
            ready: ready.map_or_else(|| "Unknown".to_owned(), |ready| ready.status.clone()),
            node: status.node_name.unwrap_or_default(),
            name: object.metadata.name.clone().unwrap_or_default(),
            instance: object.spec.instance_id.to_string(),
            vnic: status.vnic_id.map(|id| id.to_string()).unwrap_or_default(),
            vnic_name: object.spec.vnic.name.to_string(),
            purpose: word(&purpose),
            mode: if purpose == Purpose::Attach { word(&object.spec.vnic.mode) } else { String::new() },
            reason: of_ready(|ready| &ready.reason),
            message: of_ready(|ready| &ready.message),
            node_report: status.node.as_ref().map(reported).unwrap_or_default(),
        }
    }

    fn row(&self, style: Style) -> Vec<String> {
        vec![
            self.name.clone(),
            or_dash(&self.node),
            ocid(&self.instance, style),
            ocid(&self.vnic, style),
            self.vnic_name.clone(),
            or_dash(&self.purpose),
            or_dash(&self.mode),
            self.ready.clone(),
            or_dash(&self.reason),
            or_dash(&self.node_report),
            cut(&self.message, MESSAGE, style),
        ]
    }
}

/// A word as in the object.
fn word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

fn reported(report: &NodeReport) -> String {
    let state = match (report.configured, report.reason.as_str()) {
        (true, _) => "configured",
        (false, "") => "not configured",
        (false, reason) => reason,
    };
    let pods = usize::try_from(report.in_use).unwrap_or(usize::MAX);
    if pods == 0 { state.to_owned() } else { format!("{state}, {}", count(pods, "pod")) }
}
