//! The second source: pages of dcgm-exporter are used only if they are about this node and current, and the kernel outranks them.

use std::fs;
use std::path::Path;

use health::hardware::dcgm::Exporter;
use health::{Report, SignalState, Verdict};
use serde_json::json;

use crate::faults::names;
use crate::node::{Node, with};

const LOCAL: &str = "127.0.0.1:9400";
/// The ClusterIP of a Service.
const SERVICE: &str = "10.96.7.7:9400";
const BUSES: [&str; 8] = ["0F", "2D", "44", "5B", "89", "A8", "C0", "D8"];
const SIGNALS: [&str; 3] = ["dcgm_failing_gpus", "dcgm_remap_failures", "dcgm_slowed_gpus"];

/// Of a GPU of the node, by its number; those of other nodes have other digits.
fn uuid(node: u8, gpu: usize) -> String {
    format!("GPU-0000000{node}-0000-4000-8000-00000000000{gpu}")
}

/// A page about eight GPUs of BM.GPU.H100.8.
pub(crate) fn page(recorded: &str, node: u8) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/recorded/dcgm").join(recorded);
    let text = fs::read_to_string(path).unwrap().replace("{health}", "0").replace("{error}", "DCGM_FR_OK");
    let of_gpu = |line: &str, gpu: usize| {
        let line = line.replace("{gpu}", &gpu.to_string()).replace("{uuid}", &uuid(node, gpu));
        line.replace("{bus}", &format!("00000000:{}:00.0", BUSES[gpu]))
    };
    let lines = text.lines().flat_map(|line| {
        let count = if line.starts_with('#') { 1 } else { BUSES.len() };
        (0..count).map(|gpu| of_gpu(line, gpu)).collect::<Vec<_>>()
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

impl Node {
    /// BM.GPU.H100.8 with an exporter on loopback that measures now.
    pub(crate) fn h100_with_dcgm() -> Self {
        let mut node = Self::h100();
        node.exports(LOCAL, &page("page-4.txt", 0));
        node
    }

    /// An exporter at an address answers with a page.
    pub(crate) fn exports(&mut self, address: &str, page: &str) {
        let is_of_node = address != SERVICE;
        let address = address.parse().unwrap();
        self.facts.dcgm = Some(Exporter { address, path: "/metrics".to_owned(), is_of_node });
        let answer = json!({ "status": 200, "body": page, "millis": 3 });
        self.system.answers.lock().unwrap()["services"][address.to_string()] = answer;
    }
}

/// Replaces text in a line of a GPU's metric.
pub(crate) fn edited(metric: &str, gpu: usize, from: &str, to: &str) -> String {
    let edit = |line: &str| {
        let is_it = line.starts_with(metric) && line.contains(&format!("gpu=\"{gpu}\"")) && line.contains(from);
        if is_it { line.replace(from, to) } else { line.to_owned() }
    };
    page("page-4.txt", 0).lines().map(edit).collect::<Vec<_>>().join("\n") + "\n"
}

fn state(report: &Report, signal: &str) -> SignalState {
    report.signals.iter().find(|state| state.signal == signal).unwrap().clone()
}

/// The verdicts of its signals after a few samples, and the first one's detail.
fn verdicts(node: &mut Node) -> ([Verdict; 3], String) {
    (0..3).for_each(|_| drop(node.sample()));
    let report = node.sample();
    (SIGNALS.map(|signal| state(&report, signal).verdict), state(&report, SIGNALS[0]).detail)
}

#[test]
fn page_of_this_node_that_changes_is_healthy() {
    let mut node = Node::h100_with_dcgm();
    assert_eq!(verdicts(&mut node), ([Verdict::Healthy; 3], String::new()), "the last Xid is not judged");
    let mut node = Node::h100();
    node.exports(SERVICE, &page("page-4.txt", 0));
    assert_eq!(verdicts(&mut node).0, [Verdict::Healthy; 3]);
}

#[test]
fn page_of_another_node_is_unknown_even_with_the_same_places() {
    for address in [LOCAL, SERVICE] {
        let mut node = Node::h100();
        node.exports(address, &page("page-4.txt", 1).replace("DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_X"));
        let (found, detail) = verdicts(&mut node);
        assert_eq!(found, [Verdict::Unknown; 3]);
        assert!(detail.contains("the page is of another node: GPU-00000001-"), "{detail}");
    }
}

#[test]
fn places_identify_gpus_only_where_the_address_is_the_nodes() {
    let bare = page("page-4.txt", 0).replace("UUID=", "id=");
    for (address, expected) in [(LOCAL, Verdict::Healthy), (SERVICE, Verdict::Unknown)] {
        let mut node = Node::h100();
        node.exports(address, &bare);
        assert_eq!(verdicts(&mut node).0, [expected; 3], "{address}");
    }
}

#[test]
fn old_empty_missing_and_failing_pages_are_unknown() {
    let whole = page("page-4.txt", 0);
    let lines = |keep: fn(&&str) -> bool| whole.lines().filter(keep).collect::<Vec<_>>().join("\n");
    for (page, reason) in [
        (String::new(), "the page is empty"),
        (lines(|line| line.starts_with('#')), "the page is empty"),
        (whole.replace("{energy}", "251885217371"), "has had the same values for"),
        (lines(|line| !line.contains("gpu=\"3\"")), "the page lacks 0000:5b:00.0"),
        (
            lines(|line| !line.contains("gpu=\"3\"") || !line.starts_with("DCGM_EXP")),
            "the page has no DCGM_EXP_GPU_HEALTH_STATUS of 0000:5b:00.0",
        ),
        ("<html>".to_owned(), "the page is empty"),
    ] {
        let mut node = Node::h100();
        node.exports(LOCAL, &page);
        let (found, detail) = verdicts(&mut node);
        assert!(found[0] == Verdict::Unknown && detail.contains(reason), "{reason}: {found:?} {detail}");
    }
    let mut node = Node::h100_with_dcgm();
    node.system.answers.lock().unwrap()["services"][LOCAL]["status"] = json!(503);
    assert_eq!(verdicts(&mut node), ([Verdict::Unknown; 3], format!("{LOCAL} answered with status 503")));
    node.system.answers.lock().unwrap()["services"][LOCAL].take();
    assert!(verdicts(&mut node).1.starts_with(&format!("no page from {LOCAL}: ")));
}

#[test]
fn metric_outside_the_exporters_list_is_not_applicable_and_one_that_goes_is_unknown() {
    let mut node = Node::h100();
    let other = page("page-4.txt", 0).replace("DCGM_EXP_GPU_HEALTH_STATUS", "DCGM_EXP_OTHER");
    node.exports(LOCAL, &other);
    let hint = "DCGM_EXP_GPU_HEALTH_STATUS: add it to its list of metrics";
    let (found, detail) = verdicts(&mut node);
    assert_eq!(found, [Verdict::NotApplicable, Verdict::Healthy, Verdict::Healthy]);
    assert_eq!(detail, format!("the exporter does not export {hint}"));
    node.exports(LOCAL, &page("page-4.txt", 0));
    assert_eq!(verdicts(&mut node).0, [Verdict::Healthy; 3]);
    node.exports(LOCAL, &other);
    assert_eq!(verdicts(&mut node).1, format!("the exporter has stopped to export {hint}"));
}

#[test]
fn value_that_dcgm_has_not_got_is_not_healthy() {
    let mut node = Node::h100();
    node.exports(LOCAL, &page("page-2.txt", 0));
    assert_eq!(verdicts(&mut node).0, [Verdict::NotApplicable; 3]);
}

#[test]
fn kernel_outranks_the_exporter() {
    let mut node = Node::h100();
    node.write("proc/sys/kernel/random/boot_id", "0f8f1a4e-8d5c-4d3b-9a1e-6c2f0d9b7a55\n");
    node.exports(LOCAL, &edited("DCGM_EXP_GPU_HEALTH_STATUS", 3, "\"MEM\"} 0", "\"MEM\"} 20"));
    assert_eq!(verdicts(&mut node).0[0], Verdict::Problem);
    node.write(
        "kernel.log",
        "<4>[864210.000001] NVRM: Xid (PCI:0000:5b:00): 64, Row Remapper: failed, bank or table full\n",
    );
    let report = (0..12).map(|_| node.sample()).last().unwrap();
    let problems = with(&report, Verdict::Problem);
    assert!(problems.len() == 1 && problems.iter().all(|signal| signal.starts_with("gpus_need_")), "{problems:?}");
    // What the exporter shows as fine does not end the kernel's problem.
    node.exports(LOCAL, &page("page-4.txt", 0));
    (0..12).for_each(|_| drop(node.sample()));
    assert_eq!(with(&node.sample(), Verdict::Problem), problems);
}

#[test]
fn exporter_that_is_off_or_of_no_use_is_not_read() {
    let detail = |mut node: Node| state(&node.sample(), SIGNALS[0]).detail;
    assert_eq!(detail(Node::h100()), "DCGM_METRICS is off");
    let mut amd = Node::mi300x();
    amd.exports(LOCAL, &page("page-4.txt", 0));
    assert_eq!(detail(amd), "this node has no NVIDIA GPU");
    assert_eq!(with(&Node::a10().sample(), Verdict::Problem), names(&[]));
}
