//! What Oracle reports about the machines of nodes: hosts that are unhealthy, and maintenance to come. One list of hosts for the
//! tenancy and one of maintenance per compartment, once in a quarter of an hour; nothing here acts on a node.

use std::collections::HashMap;
use std::error::Error;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use health::fleet::{HOST_FAULT, MAINTENANCE_SCHEDULED, OKE_REPAIR};
use health::report::Verdict;
use health::rules::Severity;
use health::summary::Check;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use oci::{CloudView, ComputeHost, MaintenanceEvent};
use resident::logging::chain;
use tokio::time::{Instant, sleep};
use vcn::Ocid;

use crate::cluster::oke_repair::OkeRepair;
use crate::cluster::store::{NodeView, Store};
use crate::fleet::findings::{millis, problem};
use crate::fleet::shared::SharedRoster;

/// The time between two reads of a list: maintenance is announced days before, and a host's health is not urgent.
const INTERVAL: Duration = Duration::from_mins(15);
/// The time after which a new node shows its results, and a new taint counts.
const ROUND: Duration = Duration::from_secs(10);
/// The largest number of compartments.
const MAX_COMPARTMENTS: usize = 16;
/// The longest kept error, and the longest part of a message that OCI wrote, in characters.
const ERROR_MAX: usize = 200;
const WORD_MAX: usize = 40;

/// The compartments whose maintenance is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compartments(Vec<Ocid>);

pub(crate) struct HostEvents {
    /// The OCI API, to read.
    pub cloud: CloudView,
    pub store: Arc<Store>,
    pub roster: Arc<SharedRoster>,
    /// The tenancy whose hosts are listed.
    pub tenancy: Option<Ocid>,
    pub compartments: Compartments,
    pub client: Client,
    /// How OKE's repair of a node is recognized.
    pub repair: Arc<OkeRepair>,
}

/// What Oracle reported last, by instance.
#[derive(Debug, Default)]
struct Reported {
    hosts: HashMap<Ocid, ComputeHost>,
    maintenance: HashMap<Ocid, MaintenanceEvent>,
    /// What each compartment had when it was last read.
    by_compartment: HashMap<Ocid, Vec<MaintenanceEvent>>,
    /// Why the last read of a list failed.
    hosts_error: Option<String>,
    maintenance_error: Option<String>,
    repair_error: Option<String>,
}

impl FromStr for Compartments {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = text.split(',').map(|word| word.trim().parse().map_err(|error: vcn::OcidError| error.to_string()));
        let all = all.collect::<Result<Vec<Ocid>, String>>()?;
        let fits = all.len() <= MAX_COMPARTMENTS;
        fits.then_some(Self(all)).ok_or_else(|| format!("more than {MAX_COMPARTMENTS} compartments"))
    }
}

impl HostEvents {
    /// Whether there is anything to do.
    pub(crate) fn is_off(&self) -> bool {
        self.tenancy.is_none() && self.compartments.0.is_empty() && self.repair.is_off()
    }

    /// Reads the lists and shows the results, in a loop; never returns.
    pub(crate) async fn run(self) {
        let mut reported = Reported::default();
        let mut due = Instant::now();
        loop {
            if Instant::now() >= due {
                self.read(&mut reported).await;
                due = Instant::now() + INTERVAL;
            }
            self.show(&reported);
            sleep(ROUND).await;
        }
    }

    /// A failed read keeps the earlier results: a problem that cannot be measured is not solved.
    async fn read(&self, reported: &mut Reported) {
        if let Some(tenancy) = &self.tenancy {
            let read = self.cloud.compute_hosts(tenancy).await;
            reported.hosts_error = noted("ListComputeHosts", &read);
            if let Ok(hosts) = read {
                let by_instance = |host: ComputeHost| Some((host.instance_id.clone()?, host));
                reported.hosts = hosts.into_iter().filter_map(by_instance).collect();
            }
        }
        let mut error = None;
        for compartment in &self.compartments.0 {
            let read = self.cloud.maintenance_events(compartment).await;
            error = noted("ListInstanceMaintenanceEvents", &read).or(error);
            if let Ok(events) = read {
                reported.by_compartment.insert(compartment.clone(), events);
            }
        }
        reported.maintenance_error = error;
        reported.choose_maintenance();
        reported.repair_error = noted("list NodeRepairConfigs", &self.repair.read(&self.client).await);
    }

    fn show(&self, reported: &Reported) {
        let nodes = self.store.nodes();
        let mut roster = self.roster.lock();
        for node in nodes.iter() {
            roster.set_host_events(&node.name, reported.checks(node, self.repair.of(node)));
        }
    }
}

impl Reported {
    /// The earliest open event of an instance wins: times of one format sort as text.
    fn choose_maintenance(&mut self) {
        self.maintenance.clear();
        for event in self.by_compartment.values().flatten().filter(|event| event.is_open()) {
            let known = self.maintenance.entry(event.instance_id.clone()).or_insert_with(|| event.clone());
            if event.time_window_start < known.time_window_start {
                known.clone_from(event);
            }
        }
    }

    /// The checks of a node. If OKE repairs the node, as `repair` shows, that is the only check.
    fn checks(&self, node: &NodeView, repair: Option<String>) -> Vec<Check> {
        if let Some(repair) = repair {
            let message = format!("OKE repairs this node: {repair}.");
            return vec![check(OKE_REPAIR.name, Verdict::Problem, Severity::Warning, message)];
        }
        let Some(instance) = &node.instance else { return Vec::new() };
        let host = self.hosts.get(instance).and_then(host_fault);
        let host = host.or_else(|| unknown(HOST_FAULT.name, self.hosts_error.as_ref()));
        let event = self.maintenance.get(instance).map(maintenance);
        let event = event.or_else(|| unknown(MAINTENANCE_SCHEDULED.name, self.maintenance_error.as_ref()));
        let repair = unknown(OKE_REPAIR.name, self.repair_error.as_ref());
        host.into_iter().chain(event).chain(repair).collect()
    }
}

/// Logs the error of a read, and returns its text.
fn noted<T>(operation: &str, read: &Result<T, impl Error + 'static>) -> Option<String> {
    let error = read.as_ref().err()?;
    tracing::warn!(
        event = "host_events.unknown",
        operation,
        error = chain(error),
        "docs/accelerators.md#show-what-oracle-reports names the permission"
    );
    Some(vcn::excerpt(&chain(error), ERROR_MAX).into_owned())
}

fn host_fault(host: &ComputeHost) -> Option<Check> {
    let (severity, state) = match (host.health.as_str(), host.has_impacted_components) {
        ("UNHEALTHY", _) => (Severity::Critical, "unhealthy"),
        (_, true) => (Severity::Warning, "healthy with impaired components"),
        _ => return None,
    };
    let lifecycle = vcn::excerpt(&host.lifecycle_state, WORD_MAX);
    let message = format!("Oracle reports the host {} as {state} ({lifecycle}).", host.id);
    Some(check(HOST_FAULT.name, Verdict::Problem, severity, message))
}

fn maintenance(event: &MaintenanceEvent) -> Check {
    let word = |text: &str| vcn::excerpt(text, WORD_MAX).into_owned();
    let (state, action, reason) =
        (word(&event.lifecycle_state), word(&event.instance_action), word(&event.maintenance_reason));
    let latest = event.time_hard_due_date.as_deref().map(|due| format!(", at the latest {}", word(due)));
    let choice = if event.can_reschedule { "can be rescheduled" } else { "cannot be rescheduled" };
    let message = format!(
        "Maintenance of the instance is {state}: {action} because of {reason}, from {}{}; it {choice}.",
        word(&event.time_window_start),
        latest.unwrap_or_default()
    );
    check(MAINTENANCE_SCHEDULED.name, Verdict::Problem, Severity::Warning, message)
}

fn unknown(name: &str, error: Option<&String>) -> Option<Check> {
    Some(check(name, Verdict::Unknown, Severity::Warning, format!("Oracle's reports cannot be read: {}", error?)))
}

fn check(name: &str, verdict: Verdict, severity: Severity, message: String) -> Check {
    Check { verdict, message, since_unix_millis: millis(Some(Timestamp::now())), ..problem(name, severity) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const INSTANCE: &str = "ocid1.instance.oc1.iad.a";

    fn node() -> NodeView {
        NodeView { name: "a".to_owned(), instance: Some(INSTANCE.parse().unwrap()), ..NodeView::default() }
    }

    fn reported(health: &str, is_impaired: bool) -> Reported {
        let host: ComputeHost = serde_json::from_value(json!({
            "id": "ocid1.computehost.oc1.iad.h", "instanceId": INSTANCE, "health": health,
            "lifecycleState": "OCCUPIED", "hasImpactedComponents": is_impaired,
        }))
        .unwrap();
        Reported { hosts: HashMap::from([(INSTANCE.parse().unwrap(), host)]), ..Reported::default() }
    }

    fn in_short(checks: &[Check]) -> Vec<(&str, Verdict, Severity)> {
        checks.iter().map(|check| (check.name.as_str(), check.verdict, check.severity)).collect()
    }

    #[test]
    fn host_is_judged_by_health_and_components() {
        let found = |health: &str, is_impaired: bool| reported(health, is_impaired).checks(&node(), None);
        assert_eq!(found("HEALTHY", false), []);
        assert_eq!(in_short(&found("HEALTHY", true)), [("host_fault", Verdict::Problem, Severity::Warning)]);
        assert_eq!(in_short(&found("UNHEALTHY", true)), [("host_fault", Verdict::Problem, Severity::Critical)]);
    }

    #[test]
    fn repair_by_oke_is_all_that_is_said() {
        let found = reported("UNHEALTHY", true).checks(&node(), Some("a reason".to_owned()));
        assert_eq!((found.len(), found[0].message.as_str()), (1, "OKE repairs this node: a reason."));
    }

    #[test]
    fn compartment_that_cannot_be_read_keeps_no_other_one() {
        let event = |instance: &str, state: &str, from: &str| {
            serde_json::from_value::<MaintenanceEvent>(json!({
                "id": "ocid1.instancemaintenanceevent.oc1.iad.e", "instanceId": instance, "lifecycleState": state, "instanceAction": "REBOOT_MIGRATION",
                "maintenanceReason": "HARDWARE_REPLACEMENT", "timeWindowStart": from, "canReschedule": true,
            }))
            .unwrap()
        };
        let (read, failed): (Ocid, Ocid) =
            ("ocid1.compartment.oc1..a".parse().unwrap(), "ocid1.compartment.oc1..b".parse().unwrap());
        let mut reported = Reported::default();
        let first = vec![event(INSTANCE, "SCHEDULED", "2026-12-02"), event(INSTANCE, "SCHEDULED", "2026-12-01")];
        reported.by_compartment.insert(read.clone(), first);
        let other = "ocid1.instance.oc1.iad.b";
        reported.by_compartment.insert(failed, vec![event(other, "SCHEDULED", "2026-12-03")]);
        reported.choose_maintenance();
        let from = |reported: &Reported| {
            let mut all: Vec<_> = reported.maintenance.values().map(|it| it.time_window_start.clone()).collect();
            all.sort();
            all
        };
        assert_eq!(from(&reported), ["2026-12-01", "2026-12-03"]);
        reported.by_compartment.insert(read, vec![event(INSTANCE, "SUCCEEDED", "2026-12-01")]);
        reported.choose_maintenance();
        assert_eq!(from(&reported), ["2026-12-03"]);
    }

    #[test]
    fn list_that_fails_is_unknown_and_ends_no_problem() {
        let failed = Reported { hosts_error: Some("404".to_owned()), ..reported("UNHEALTHY", false) };
        assert_eq!(in_short(&failed.checks(&node(), None))[0].1, Verdict::Problem);
        let failed = Reported { hosts_error: Some("404".to_owned()), ..Reported::default() };
        assert_eq!(in_short(&failed.checks(&node(), None)), [("host_fault", Verdict::Unknown, Severity::Warning)]);
    }

    #[test]
    fn compartments_are_identifiers_and_bounded() {
        let read = |text: &str| text.parse::<Compartments>().map(|all| all.0.len()).ok();
        let largest = vec!["ocid1.compartment.oc1..c"; MAX_COMPARTMENTS];
        assert_eq!(read("ocid1.compartment.oc1..c, ocidv1:tenancy:oc1:phx:1460406592660:aaaa"), Some(2));
        assert_eq!(
            (read(&largest.join(",")), read(&[largest, vec!["ocid1.compartment.oc1..d"]].concat().join(","))),
            (Some(16), None)
        );
        assert_eq!([read(""), read("off"), read("a,b")], [None; 3]);
    }
}
