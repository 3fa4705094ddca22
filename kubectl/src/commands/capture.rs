//! `capture`: state, packets or logs of one node in a tar. A NodeTask makes it; the token that opens it exists in this process only.
//! The task ends with the command, and so does what the node keeps.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use api::capture::{CAPTURE_BYTES_MAX, VIEW_CAPTURE_PATH};
use api::node_task::{Capture as CaptureSpec, LogCapture, PacketCapture, PacketProtocol, TaskAction, TaskState};
use api::{NodeTask, NodeTaskSpec, NodeTaskStatus, Reason as _, TaskReason};
use command::page::Page;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use stream::Relay;
use tokio::time::{Instant, sleep};
use vcn::printable;

use crate::answer::{Answer, Exit, Style};
use crate::args::capture::{CaptureArgs, Protocol};
use crate::bundle::file::{TarFile, is_stdout};
use crate::bundle::progress::{Progress, size};
use crate::bundle::receive::receive;
use crate::cluster::Cluster;
use crate::interrupts::Interrupts;
use crate::leader::stream::{Opened, open};
use crate::task_runs::created_by;

/// Between two reads of the task.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// More than packets and then logs take, with the time of the controller.
const WAIT_MAX: Duration = Duration::from_secs(660);
/// How long the node keeps the capture of a killed command, in seconds.
const TTL_SECONDS: u32 = 900;
/// The entry that describes the others.
const README: &str = "README.txt";

/// A capture that was written.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Capture {
    pub file: PathBuf,
    pub node: String,
    pub bytes: u64,
    pub entries: u64,
    /// The text of its README.txt.
    pub readme: Vec<String>,
    /// What the controller reports: packets, bytes, and why there are no logs.
    pub result: String,
}

/// Makes one. Ctrl-C deletes the task and removes the unfinished file.
pub(crate) async fn run(cluster: &Cluster, args: &CaptureArgs) -> anyhow::Result<Capture> {
    let mut interrupts = Interrupts::new().context("waiting for signals")?;
    let progress = Progress::default();
    let token = token()?;
    let tasks: Api<NodeTask> = Api::all(cluster.client().await?);
    let task = created_by(task(args, &token), &cluster.user().await);
    let created = tasks.create(&PostParams::default(), &task).await.map_err(refused)?;
    let name = created.metadata.name.unwrap_or_default();
    // Cancel-safe: the unfinished file goes with the first one, and the task is deleted afterwards.
    let captured = tokio::select! {
        captured = async {
            let result = wait(&tasks, &name, &progress).await?;
            Ok(Capture { result, ..fetch(cluster, &name, &token, args, &progress).await? })
        } => captured,
        () = progress.print() => Err(anyhow!("the progress ended")),
        () = interrupts.next() => Err(match is_stdout(&args.file) {
            true => anyhow!("interrupted: the output is incomplete"),
            false => anyhow!("interrupted: {} was not written", args.file.display()),
        }),
    };
    if let Err(error) = tasks.delete(&name, &DeleteParams::default()).await {
        let left = format!("deleting NodeTask {name}; the node removes the capture after {} minutes", TTL_SECONDS / 60);
        return captured.and_then(|_| Err(error).context(left));
    }
    captured
}

/// Writes the finished capture into the file.
async fn fetch(
    cluster: &Cluster,
    name: &str,
    token: &str,
    args: &CaptureArgs,
    progress: &Progress,
) -> anyhow::Result<Capture> {
    progress.set("requesting the capture".to_owned());
    let stream = match open(cluster, &format!("{VIEW_CAPTURE_PATH}?task={name}"), token).await? {
        Opened::Stream(stream) => stream,
        Opened::Refused(status, text) => bail!("the controller answered {}: {text}", status.as_u16()),
    };
    let mut file = TarFile::create(&args.file)?;
    let relay = Relay::into_folder("capture", CAPTURE_BYTES_MAX).keeping(README);
    let relayed = receive(relay, stream, progress, &mut file).await?;
    if let Some(problem) = relayed.problem {
        bail!("the capture is incomplete: {problem}");
    }
    let readme = String::from_utf8_lossy(&relayed.kept).lines().map(|line| printable(line).into_owned()).collect();
    let bytes = file.finish()?;
    let (file, node, entries) = (args.file.clone(), args.node.clone(), relayed.entries);
    Ok(Capture { file, node, bytes, entries, readme, result: String::new() })
}

/// Waits until the capture is complete. Returns what the controller reports.
async fn wait(tasks: &Api<NodeTask>, name: &str, progress: &Progress) -> anyhow::Result<String> {
    let end = Instant::now() + WAIT_MAX;
    let mut status = NodeTaskStatus::default();
    while Instant::now() < end {
        let task = tasks.get_opt(name).await.with_context(|| format!("reading NodeTask {name}"))?;
        status =
            task.with_context(|| format!("NodeTask {name} was deleted before it ended"))?.status.unwrap_or_default();
        match status.state {
            Some(TaskState::Succeeded) => return Ok(printable(&status.message).into_owned()),
            Some(TaskState::Failed | TaskState::Refused) => bail!("{}", failure(&status)),
            None | Some(TaskState::Pending | TaskState::Running | TaskState::Stopped) => {}
        }
        progress.set(match (status.state, status.message.as_str()) {
            (None, _) => "waiting for the controller".to_owned(),
            (Some(state), "") => format!("the NodeTask is {}", state.as_str()),
            (Some(_), message) => message.to_owned(),
        });
        sleep(READ_INTERVAL).await;
    }
    if status.state.is_none() {
        bail!(
            "the controller did not start the task within {} s: check that it runs, and that its version supports NodeTasks",
            WAIT_MAX.as_secs()
        );
    }
    bail!("the capture took longer than {} s; its last state: {}", WAIT_MAX.as_secs(), status.message)
}

/// The reason with its next step.
fn failure(status: &NodeTaskStatus) -> String {
    let NodeTaskStatus { reason, message, .. } = status;
    let next = TaskReason::from_word(reason).map(TaskReason::to_do).unwrap_or_default();
    format!("{reason}: {message}. {next}").trim_end().to_owned()
}

fn refused(error: kube::Error) -> anyhow::Error {
    let next = match &error {
        kube::Error::Api(status) if status.code == 404 => "apply the manifests of this version",
        kube::Error::Api(status) if status.code == 403 => {
            "your user needs `create` and the verb `capture` on nodetasks, with --payload also `capture-payload`: the ClusterRole \
             oke-node-task-admin has them"
        }
        _ => "",
    };
    let what = if next.is_empty() { String::new() } else { format!(" ({next})") };
    anyhow::Error::new(error).context(format!("creating a NodeTask{what}"))
}

/// 256 random bits, which open the capture.
fn token() -> anyhow::Result<String> {
    let mut bytes = [0; 32];
    let random = rustls::crypto::aws_lc_rs::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| anyhow!("the system has no random numbers"))?;
    Ok(hexadecimal(&bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn task(args: &CaptureArgs, token: &str) -> NodeTask {
    let is_state = args.state || args.packets.is_none() && args.logs.is_empty();
    let protocol = |protocol| match protocol {
        Protocol::Tcp => PacketProtocol::TCP,
        Protocol::Udp => PacketProtocol::UDP,
        Protocol::Icmp => PacketProtocol::ICMP,
        Protocol::Arp => PacketProtocol::ARP,
    };
    let packets = args.packets.map(|seconds| PacketCapture {
        seconds: Some(seconds),
        size_mib: args.size,
        protocol: args.protocol.map(protocol),
        host: args.host,
        port: args.port,
        interface: args.interface.clone(),
        payload: args.payload,
    });
    let logs = (!args.logs.is_empty()).then(|| LogCapture { units: units(&args.logs), hours: args.hours });
    let token_hash = hexadecimal(&Sha256::digest(token));
    let capture = CaptureSpec { token_hash, state: is_state, packets, logs };
    let spec = NodeTaskSpec {
        node: Some(args.node.clone()),
        node_selector: None,
        action: TaskAction { capture: Some(capture), ..TaskAction::default() },
        concurrency: None,
        max_failures: None,
        deadline_minutes: None,
        ttl_seconds_after_finished: Some(TTL_SECONDS),
    };
    let mut task = NodeTask::new("", spec);
    task.metadata.name = None;
    task.metadata.generate_name = Some("capture-".to_owned());
    task
}

/// Each unit once, in the order of the arguments.
fn units(names: &[String]) -> Vec<String> {
    let mut units: Vec<String> = Vec::new();
    for name in names {
        if !units.contains(name) {
            units.push(name.clone());
        }
    }
    units
}

impl Answer for Capture {
    fn exit(&self) -> Exit {
        Exit::Fine
    }

    fn show(&self, page: &mut Page, _: Style) {
        self.readme.iter().for_each(|line| page.line(line));
        page.line("");
        page.line(format_args!(
            "{}: {}, {} entries of node {}: {}",
            self.file.display(),
            size(self.bytes),
            self.entries,
            self.node,
            self.result
        ));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Command};

    fn args(words: &[&str]) -> Option<CaptureArgs> {
        let words = [&["x", "capture", "10.0.0.2", "--file", "out.tar"], words].concat();
        match Args::try_parse_from(words).ok()?.command {
            Command::Capture(args) => Some(args),
            _ => None,
        }
    }

    #[test]
    fn task_has_the_options_and_the_hash_alone() {
        let token = token().unwrap();
        assert_eq!((token.len(), token == super::token().unwrap()), (64, false));
        let capture = |words: &[&str]| {
            let task = serde_json::to_value(task(&args(words).unwrap(), &token)).unwrap();
            assert!(!task.to_string().contains(&token) && task.to_string().len() < 2048, "{task}");
            task["spec"]["action"]["capture"].clone()
        };
        let hash = hexadecimal(&Sha256::digest(&token));
        assert_eq!(capture(&[]), serde_json::json!({ "tokenHash": hash, "state": true }));
        let words = "--packets 30 --size 8 --protocol tcp --port 443 --host 10.0.1.7 --interface ens3 --payload";
        let expected = serde_json::json!({ "tokenHash": hash, "packets": { "seconds": 30, "sizeMiB": 8, "protocol": "TCP",
            "host": "10.0.1.7", "port": 443, "interface": "ens3", "payload": true } });
        assert_eq!(capture(&words.split_whitespace().collect::<Vec<_>>()), expected);
        let words = ["--logs", "kubelet,crio.service", "--logs", "kubelet", "--hours", "6"];
        let logs = serde_json::json!({ "units": ["kubelet.service", "crio.service"], "hours": 6 });
        assert_eq!(capture(&words), serde_json::json!({ "tokenHash": hash, "logs": logs }));
    }

    #[test]
    fn options_that_lack_another_or_are_invalid_are_refused() {
        let packets = ["--host 10.0.0.1", "--payload", "--packets 0", "--packets 301", "--packets 9 --port 1"];
        let logs = [
            "--hours 1",
            "--logs a --hours 25",
            "--logs *",
            "--logs ../a",
            "--logs a,",
            "--logs a.conf",
            "--logs=-b.service",
        ];
        for words in packets.into_iter().chain(logs) {
            assert!(args(&words.split_whitespace().collect::<Vec<_>>()).is_none(), "{words}");
        }
    }

    #[test]
    fn failure_has_reason_message_and_next_step() {
        let status = NodeTaskStatus {
            reason: "NotEnabled".to_owned(),
            message: "the chart's value tasks is not true".to_owned(),
            ..NodeTaskStatus::default()
        };
        let text = failure(&status);
        assert!(text.starts_with("NotEnabled: the chart's value tasks is not true. Set the chart's value"), "{text}");
    }
}
