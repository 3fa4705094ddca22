//! `bundle`: one tar for support, of the controller, the fleet, our objects and the bundles of nodes. It is written as it arrives.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use api::bundle::{BUNDLE_INDEX, BUNDLE_NODES_MAX, BundleIndex, BundledNode, VIEW_BUNDLE_PATH};
use command::page::Page;
use health::fleet::NodeState;
use hyper::StatusCode;
use serde::Serialize;
use stream::Relay;
use vcn::printable;

use crate::answer::{Answer, Exit, Style};
use crate::args::{BundleArgs, NodeSelection};
use crate::bundle::file::{TarFile, is_stdout};
use crate::bundle::progress::{Progress, size};
use crate::bundle::receive::receive;
use crate::bundle::{objects, token};
use crate::cluster::Cluster;
use crate::commands::status;
use crate::failure::words;
use crate::interrupts::Interrupts;
use crate::leader::stream::{LeaderStream, Opened, open};

/// The most bytes that are taken from the leader: 20 nodes at their bound, and the fleet. A hostile program on the leader's port chooses
/// sizes, and zeros replace what is missing.
const BYTES_MAX: u64 = 1 << 30;

/// A bundle that was written.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Bundle {
    pub file: PathBuf,
    pub bytes: u64,
    pub nodes: Vec<BundledNode>,
    /// What is missing besides nodes, and why.
    pub missing: Vec<Missing>,
}

/// A part that a bundle lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Missing {
    pub part: String,
    pub why: String,
}

/// Writes one. Ctrl-C removes the unfinished file.
pub(crate) async fn run(cluster: &Cluster, args: &BundleArgs) -> anyhow::Result<Bundle> {
    let mut interrupts = Interrupts::new().context("waiting for signals")?;
    let progress = Progress::default();
    // Cancel-safe: the unfinished file goes with the first one.
    tokio::select! {
        bundle = write(cluster, args, &progress) => bundle,
        () = progress.print() => bail!("the progress ended"),
        () = interrupts.next() => match is_stdout(&args.file) {
            true => bail!("interrupted: the output is incomplete"),
            false => bail!("interrupted: the unfinished file was removed, and {} was not written", args.file.display()),
        },
    }
}

async fn write(cluster: &Cluster, args: &BundleArgs, progress: &Progress) -> anyhow::Result<Bundle> {
    progress.set("selecting nodes".to_owned());
    let Selected { nodes, left_out } = selected(cluster, args).await?;
    let mut bundle = Bundle { file: args.file.clone(), ..Bundle::default() };
    bundle.nodes.extend(left_out.into_iter().map(|name| {
        let problem = Some(format!("a bundle has at most {BUNDLE_NODES_MAX} nodes; these are the worst"));
        BundledNode { name, problem, ..BundledNode::default() }
    }));
    progress.set("creating a token".to_owned());
    // Before there is a file: without the right there is no bundle.
    let token = token::create(cluster).await?;
    let mut file = TarFile::create(&args.file)?;
    let objects = objects::write(cluster, progress, &mut file).await?;
    bundle.missing.extend(objects.into_iter().map(|(part, why)| Missing { part, why }));
    progress.set("requesting the controller's bundle".to_owned());
    let opened = match token {
        Ok(token) => leader(cluster, &nodes, &token).await?,
        Err(why) => Err(why),
    };
    let index = match opened {
        Ok(stream) => {
            let relay = Relay::into_folder("bundle", BYTES_MAX).keeping(BUNDLE_INDEX);
            let relayed = receive(relay, stream, progress, &mut file).await?;
            let part = "the controller's stream".to_owned();
            bundle.missing.extend(relayed.problem.map(|why| Missing { part, why }));
            serde_json::from_slice(&relayed.kept).unwrap_or_default()
        }
        Err(why) => {
            bundle.missing.push(Missing { part: "controller".to_owned(), why });
            BundleIndex::default()
        }
    };
    bundle.nodes.splice(0..0, accounted(index, nodes));
    file.entry("README.txt", readme(&bundle).as_bytes())?;
    bundle.bytes = file.finish()?;
    Ok(bundle)
}

/// The nodes of a bundle.
struct Selected {
    nodes: Vec<String>,
    /// The others that are selected.
    left_out: Vec<String>,
}

async fn selected(cluster: &Cluster, args: &BundleArgs) -> anyhow::Result<Selected> {
    if !args.problems && args.selection == NodeSelection::default() {
        return Ok(Selected { nodes: args.node.clone(), left_out: Vec::new() });
    }
    let mut found = status::of_selected(cluster, &args.selection).await?.fleet.nodes;
    found.retain(|node| !args.problems || node.state != NodeState::Healthy);
    let mut nodes: Vec<String> = found.into_iter().map(|node| node.name).collect();
    let left_out = nodes.split_off(nodes.len().min(BUNDLE_NODES_MAX));
    Ok(Selected { nodes, left_out })
}

/// Opens the leader's stream. The inner error: no leader can send it, and the bundle has the other parts.
async fn leader(cluster: &Cluster, nodes: &[String], token: &str) -> anyhow::Result<Result<LeaderStream, String>> {
    let query: Vec<String> = nodes.iter().map(|name| format!("node={name}")).collect();
    let opened = open(cluster, &format!("{VIEW_BUNDLE_PATH}?{}", query.join("&")), token).await;
    Ok(match opened {
        Ok(Opened::Stream(stream)) => Ok(stream),
        Ok(Opened::Refused(StatusCode::NOT_FOUND, _)) => Err("its version serves no bundles".to_owned()),
        Ok(Opened::Refused(StatusCode::SERVICE_UNAVAILABLE, text)) => Err(text),
        Ok(Opened::Refused(status, text)) => bail!("the controller answered {}: {text}", status.as_u16()),
        Err(error) => Err(words(&error)),
    })
}

/// The requested nodes, in the order of the leader's account, and those that it lacks.
fn accounted(index: BundleIndex, requested: Vec<String>) -> impl Iterator<Item = BundledNode> {
    let known: BTreeSet<String> = index.nodes.iter().map(|node| node.name.clone()).collect();
    let missing = requested.into_iter().filter(move |name| !known.contains(name));
    let problem = || Some("the controller's stream ended before this node".to_owned());
    index.nodes.into_iter().chain(missing.map(move |name| BundledNode {
        name,
        problem: problem(),
        ..BundledNode::default()
    }))
}

fn readme(bundle: &Bundle) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let version = env!("CARGO_PKG_VERSION");
    let missing = bundle.missing_lines();
    let missing = if missing.is_empty() { vec!["nothing".to_owned()] } else { missing };
    format!(
        "The state of a cluster's node management. Written at {now} (seconds since 1970) by kubectl oke-node {version}.\n\n\
         objects/         objects of the API server, reduced: Nodes, our resources, workloads and Events\n\
         controller/      the leader: its state, its settings, its metrics, and the fleet as `kubectl oke-node status` shows it\n\
         nodes/NAME/      the bundle of a node; its README.txt lists the entries\n\
         index.json       the nodes, with what each lacks\n\n\
         Never collected: Secrets, variables of containers, annotations of other programs, users and queries of URLs, values\n\
         of tags and of CNI configurations, files of other programs.\n\nMissing:\n  {}\n",
        missing.join("\n  ")
    )
}

impl Bundle {
    fn missing_lines(&self) -> Vec<String> {
        let nodes =
            self.nodes.iter().filter_map(|node| Some(format!("nodes/{}: {}", node.name, node.problem.as_ref()?)));
        let lines = self.missing.iter().map(|missing| format!("{}: {}", missing.part, missing.why)).chain(nodes);
        // A hostile program on the leader's port may have written a part of them.
        lines.map(|line| printable(&line).into_owned()).collect()
    }
}

impl Answer for Bundle {
    fn exit(&self) -> Exit {
        if self.missing_lines().is_empty() { Exit::Fine } else { Exit::Undecided }
    }

    fn show(&self, page: &mut Page, _: Style) {
        if !self.nodes.is_empty() {
            let row = |node: &BundledNode| {
                let state = if node.problem.is_some() { "incomplete" } else { "complete" };
                vec![node.name.clone(), node.entries.to_string(), size(node.bytes), state.to_owned()]
            };
            page.columns(&["NODE", "ENTRIES", "SIZE", "BUNDLE"], self.nodes.iter().map(row));
            page.line("");
        }
        let missing = self.missing_lines();
        missing.iter().for_each(|line| page.line(format_args!("Missing: {line}")));
        let state = if missing.is_empty() { "complete" } else { "INCOMPLETE" };
        page.line(format_args!("{}: {}, {state}", self.file.display(), size(self.bytes)));
    }
}

#[cfg(test)]
mod tests {
    use stream::Relayed;

    use super::*;

    #[test]
    fn node_without_account_is_missing() {
        let node = |name: &str| BundledNode { name: name.to_owned(), entries: 3, ..BundledNode::default() };
        let index = BundleIndex { nodes: vec![node("b")] };
        let all: Vec<BundledNode> = accounted(index, vec!["a".to_owned(), "b".to_owned()]).collect();
        let states: Vec<_> = all.iter().map(|node| (node.name.as_str(), node.problem.is_some())).collect();
        assert_eq!(states, [("b", false), ("a", true)]);
        let bundle = Bundle { nodes: all, ..Bundle::default() };
        assert_eq!(bundle.exit(), Exit::Undecided);
        assert!(readme(&bundle).ends_with("Missing:\n  nodes/a: the controller's stream ended before this node\n"));
        assert!(readme(&Bundle::default()).ends_with("Missing:\n  nothing\n"));
    }

    #[test]
    fn words_of_the_leader_are_printable() {
        let problem = Some("\u{1b}[2J\nnothing".to_owned());
        let nodes = vec![BundledNode { name: "a".to_owned(), problem, ..BundledNode::default() }];
        let bundle = Bundle { nodes, ..Bundle::default() };
        assert!(readme(&bundle).ends_with("Missing:\n  nodes/a: \\u{1b}[2J\\nnothing\n"), "{}", readme(&bundle));
    }

    /// What kubectl has of a stream of these bytes, and the length of its file.
    fn relayed(answer: &'static [u8]) -> (Relayed, u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let target = std::env::temp_dir().join(format!("bundle-relayed-{}.tar", std::process::id()));
        let relayed = runtime.block_on(async {
            let mut file = TarFile::create(&target).unwrap();
            let stream = LeaderStream::of(answer).await;
            let relay = Relay::into_folder("bundle", BYTES_MAX);
            let relayed = receive(relay, stream, &Progress::default(), &mut file).await.unwrap();
            file.finish().unwrap();
            relayed
        });
        let length = std::fs::metadata(&target).unwrap().len();
        std::fs::remove_file(&target).unwrap();
        (relayed, length)
    }

    #[test]
    fn size_in_a_header_alone_fills_no_disk() {
        for (size, problem) in [
            (BYTES_MAX + 1, "entries from bundle/a on exceed"),
            (3000, "the end of a and later entries are missing, zeros replace 3072 bytes"),
        ] {
            let mut header = stream::entry("bundle/a", &[]).unwrap();
            header[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
            header[148..156].fill(b' ');
            let sum: u32 = header.iter().copied().map(u32::from).sum();
            header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            let (relayed, length) = relayed(header.leak());
            assert!(relayed.problem.as_deref().is_some_and(|found| found.contains(problem)), "{relayed:?}");
            assert!(length < 10_000, "{length} bytes");
        }
    }
}
