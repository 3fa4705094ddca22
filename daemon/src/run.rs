//! Wiring: which tasks there are and what they share.
//!
//! ```text
//!   npn, attachments (watches) ─▶ poller ──NodeFacts──▶ reconcile_loop ──Pass──▶ status_server (TCP, socket)
//!                      ▲ kernel events          ▲
//!   plugins ──records──┴──▶ cni_records ────────┘
//!                              └─▶ metrics, follow_up (announcements, connections)
//! ```

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use health::summary::poll::NodeReport;
use imds::Imds;
use resident::args::Output;
use resident::reload::RunningConfiguration;
use resident::{logging, reload, scrape, server};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use vcn::printable;

use crate::args;
use crate::args::{BundleOutput, Command, ProbeOutput};
use crate::captures;
use crate::cli::bundle;
use crate::cli::command;
use crate::cli::command::Invocation;
use crate::cli::exit::Exit;
use crate::cli::query::QueryError;
use crate::cli::show;
use crate::cni_records;
use crate::cni_records::follow_up;
use crate::controller_channel;
use crate::facts::condition::{Condition, Reason};
use crate::facts::node_facts::NodeFacts;
use crate::lifecycle::agent::Agent;
use crate::lifecycle::directories;
use crate::lifecycle::uninstall_on_delete;
use crate::node_policy;
use crate::node_policy::PolicySurroundings;
use crate::operation;
use crate::probes;
use crate::reconcile::Reconciler;
use crate::reconcile::kernel_limits;
use crate::reconcile::kernel_limits::RepairGate;
use crate::report::node_events;
use crate::report::notices::Notices;
use crate::report::port;
use crate::report::signals;
use crate::report::status_server::StatusServer;
use crate::report::vnic_reports;
use crate::settings::{AGENT_LOCK, Settings};
use crate::sources::attachments::AttachmentSource;
use crate::sources::backoff::chance;
use crate::sources::instance_watch::InstanceWatcher;
use crate::sources::npn::NpnSource;
use crate::sources::oke_cni;
use crate::sources::poller;
use crate::sources::poller::ClusterSources;
use crate::triggers::reconcile_loop::{ReconcileLoop, Wakeups};

/// How long work in progress may take when the agent gets SIGTERM. Files are replaced whole and the kernel's steps are
/// found again by the next agent, so nothing is lost by not waiting longer.
const STOP_TIMEOUT: Duration = Duration::from_millis(1000);

/// The same while a change of a link is undone: within the manifest's terminationGracePeriodSeconds.
const UNDO_MAX: Duration = Duration::from_secs(20);

/// Previews waiting for their turn.
const PREVIEWS: usize = 4;

/// Does what the command line says. The agent itself only ends with an error when it cannot work at all.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<Exit> {
    let invocation = match command::read(arguments.into_iter().collect(), resident::command_line::environment()) {
        Ok(invocation) => invocation,
        Err(error) => {
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Fine };
            // As in `print`.
            let _ = error.print();
            return Ok(exit);
        }
    };
    let Invocation { command, layers } = invocation;
    let keys = args::keys();
    if let Command::Config(config_args) = command {
        let (text, exit) = show::configuration(&layers, &config_args)?;
        return Ok(print(&text, exit));
    }
    if let Command::Probe(ProbeOutput { message }) = command {
        return probes::pod::run(&message).map(|()| Exit::Fine);
    }
    if let Command::Operation(arguments) = command {
        return operation::run(&arguments).map(|()| Exit::Fine);
    }
    if command == Command::Run {
        return match RunningConfiguration::start(keys, layers) {
            Ok((settings, live)) => stay(Arc::new(settings), live).map(|()| Exit::Fine),
            Err(problems) => {
                problems.iter().for_each(|problem| eprintln!("oke-node-agent: {problem}"));
                eprintln!("oke-node-agent: nothing was started; `oke-node-agent config --explain` tells every key");
                Ok(Exit::Usage)
            }
        };
    }
    // An agent goes on with its last good configuration, so its subcommands must not be stopped by the new one.
    let settings: Settings =
        layers.read(&keys).settings_anyway(&keys).context("no settings, not even those of an empty configuration")?;
    let printout = match command {
        Command::Status(Output { output }) => show::status(&settings, output),
        Command::WhyNotReady(Output { output }) => show::why_not_ready(&settings, output),
        Command::Pools(Output { output }) => show::pools(&settings, output),
        Command::Attachments(Output { output }) => show::attachments(&settings, output),
        Command::Health(Output { output }) => show::health(&settings, output),
        Command::Plan(Output { output }) => show::plan(&settings, output),
        Command::Bundle(BundleOutput { file }) => return bundle::write(&settings, &layers, file.as_deref()),
        Command::Run | Command::Probe(_) | Command::Operation(_) | Command::Config(_) => return Ok(Exit::Fine),
    };
    match printout {
        Ok((text, exit)) => Ok(print(&text, exit)),
        Err(error) if matches!(error.downcast_ref(), Some(QueryError::NotRunning(_))) => {
            eprintln!("oke-node-agent: {}", printable(&error.to_string()));
            Ok(Exit::NotRunning)
        }
        Err(error) => Err(error),
    }
}

fn print(text: &str, exit: Exit) -> Exit {
    // `… | head` closes the pipe, which is not a failure.
    let _ = std::io::stdout().write_all(text.as_bytes());
    exit
}

/// Why the agent ends.
enum End {
    /// By a signal; all our objects stay on the node.
    Stopped,
    /// By a signal, and its DaemonSet was deleted.
    Uninstalled,
    /// Its configuration file changed.
    Reconfigured,
}

fn stay(settings: Arc<Settings>, live: RunningConfiguration<Settings>) -> anyhow::Result<()> {
    logging::start(settings.resident.log_level);
    reload::unblock_signals().context("unblocking signals")?;
    for directory in [&settings.state_dir, &settings.data_dir] {
        directories::make(directory).with_context(|| format!("creating {}", directory.display()))?;
    }
    let lock = only_agent(&settings.state_dir)?;
    captures::clear(&settings.data_dir);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(5)
        .thread_stack_size(1 << 20)
        .build()
        .context("starting the runtime")?;
    let end = runtime.block_on(agent(settings.clone(), live));
    let stopped = Instant::now();
    // A node that a change of a link cut off gets no next agent: the change is undone first.
    let is_changing = node_policy::has_unfinished_change(&settings.data_dir);
    runtime.shutdown_timeout(if is_changing { UNDO_MAX } else { STOP_TIMEOUT });
    // It waits no longer than for the last of its threads.
    let ended = stopped.elapsed() < if is_changing { UNDO_MAX } else { STOP_TIMEOUT };
    drop(lock);
    match end? {
        End::Stopped => {}
        End::Uninstalled => uninstall_on_delete::uninstall(&settings, ended),
        End::Reconfigured => {
            let restart = if signals::has_stuck_run() { reload::restart_in_child } else { reload::restart };
            return Err(restart()).context("executing the agent again");
        }
    }
    Ok(())
}

/// Works until a signal ends it, or its configuration file changes.
async fn agent(settings: Arc<Settings>, live: RunningConfiguration<Settings>) -> anyhow::Result<End> {
    let (notice_sender, notices) = Notices::channel();
    let notices_of = |task| Notices::of(task, &notice_sender);
    let mut term = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut int = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let (facts_in, facts) = watch::channel(NodeFacts::default());
    let (reports_in, reports) = watch::channel(None);
    let (previews_in, previews) = mpsc::channel(PREVIEWS);
    let (oke_cni_in, oke_cni) = watch::channel(None);
    let agent = Arc::new(Agent::new(settings.clone(), facts, reports).context("reading the boot id")?);
    let (node_report_in, node_report) = watch::channel(NodeReport::default());
    let signals = signals::start(agent.clone(), node_report).context("starting the thread of health signals")?;
    let gate = RepairGate::default();
    let status_server =
        Arc::new(StatusServer { agent: agent.clone(), signals: signals.clone(), previews: previews_in });
    let path = settings.socket();
    let socket = server::socket(&path).with_context(|| format!("listening on {}", path.display()))?;
    let records = cni_records::listen(&settings.state_dir)?;
    let metadata = Imds::new(&settings.metadata_url, imds::POLICY).context("setting up the metadata client")?;
    let npn_changed = agent.npn_changed.clone();
    let (npn, npn_watcher) = NpnSource::watched(&settings, npn_changed.clone());
    let (attachments, attachment_watcher) = AttachmentSource::watched(&settings, npn_changed.clone());
    let reconciler = Reconciler::new(settings.clone()).context("reading the boot id")?;
    let wakeups = Wakeups::new(agent.clone(), notices, previews, reports_in);
    log_start(&settings, &npn);
    let cluster = ClusterSources { npn, attachments };
    let (file, layers) = (live.file().display().to_string(), live.layers().clone());
    let configuration_notices = notices_of("configuration");
    let reload = live.changed(settings.resident.reload_jitter().mul_f64(chance()), |trouble| {
        let invalid = |message| Condition::degraded(Reason::ConfigurationInvalid, message).about(&file);
        configuration_notices.report(trouble.map(invalid));
    });
    // Cancel-safe: whatever wins ends the agent.
    let end = tokio::select! {
        // A person at a terminal has `uninstall`.
        _ = int.recv() => End::Stopped,
        _ = term.recv() => if uninstall_on_delete::is_for_good(&settings).await { End::Uninstalled } else { End::Stopped },
        () = reload => End::Reconfigured,
        () = node_events::run(agent.clone()) => bail!("the task that tells events ended"),
        () = forever(npn_watcher.map(InstanceWatcher::run)) => bail!("the watch of the NativePodNetwork ended"),
        () = forever(attachment_watcher.map(InstanceWatcher::run)) => bail!("the watch of VnicAttachments ended"),
        () = vnic_reports::run(agent.clone()) => bail!("the task that reports VNICs ended"),
        () = oke_cni::run(oke_cni_in, npn_changed) => bail!("the watch of OKE's own CNI ended"),
        () = poller::run(metadata, cluster, &agent, facts_in, oke_cni) => bail!("the sources' task ended"),
        ended = ReconcileLoop::run(reconciler, wakeups) => bail!("the reconcile loop ended: {}", ended.err().map_or("no cause".into(), |error| error.to_string())),
        ended = cni_records::run(records, agent.clone()) => ended.context("reading the plugins' records").map(|()| End::Stopped)?,
        ended = follow_up::run(agent.clone()) => ended.context("looking after addresses").map(|()| End::Stopped)?,
        () = port::run(settings.listen, status_server.clone(), notices_of("port")) => bail!("the port's server ended"),
        () = controller_channel::run(status_server.clone(), gate.clone(), node_report_in, notices_of("channel"), layers) => bail!("the channel's server ended"),
        () = kernel_limits::run(settings.sysctl_root.clone(), signals, gate, agent.policies.named(), notices_of("limits")) => bail!("the task that raises limits ended"),
        ended = node_policy::run(policy_surroundings(&agent, notices_of("policies"))) => ended.context("applying node policies").map(|()| End::Stopped)?,
        () = scrape::run(settings.metrics_port.clone(), status_server.clone()) => bail!("the metrics' server ended"),
        () = server::serve_socket(socket, status_server) => bail!("the socket's server ended"),
    };
    // Nothing is undone, unless we are not wanted any more: pods live on, and so do the host's routes.
    tracing::info!(event = "agent.stopping");
    let _ = std::fs::remove_file(path);
    Ok(end)
}

fn policy_surroundings(agent: &Arc<Agent>, notices: Notices) -> PolicySurroundings {
    let (changed, answered) = (agent.clone(), agent.clone());
    PolicySurroundings {
        settings: agent.settings.clone(),
        boot: agent.boot.clone(),
        facts: agent.facts.clone(),
        policies: agent.policies.clone(),
        report: Box::new(move |conditions| notices.report(conditions)),
        count_change: Box::new(move |action, succeeded| changed.metrics.policy_changed(action, succeeded)),
        count_items: Box::new(move |answer| answered.metrics.set_policy_items(answer)),
    }
}

fn log_start(settings: &Settings, npn: &NpnSource) {
    tracing::info!(
        event = "agent.started",
        version = env!("CARGO_PKG_VERSION"),
        listen = %settings.listen,
        state_dir = %settings.state_dir.display(),
        native_pod_network = %npn,
    );
}

/// A watch of the API server, if it is watched.
async fn forever(watch: Option<impl Future<Output = ()>>) {
    match watch {
        Some(watch) => watch.await,
        None => std::future::pending().await,
    }
}

/// Two agents would write the same files and undo each other. The lock goes with the process.
fn only_agent(state_dir: &Path) -> anyhow::Result<File> {
    let path = state_dir.join(AGENT_LOCK);
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .with_context(|| format!("opening {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!("another agent is running on this node: it holds {}", path.display()),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("locking {}", path.display())),
    }
}
