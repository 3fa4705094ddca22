//! Wiring: which tasks there are and what they share.
//!
//! ```text
//!   gather ──World──▶ wake (reconcile) ──Pass──▶ board ──▶ server (TCP, socket)
//!                      ▲ kernel events             ▲
//!   plugins ──records──┼──▶ verbs ──▶ metrics ─────┘
//!                      │      └─▶ aftercare (announcements, connections)
//! ```

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use imds::{Imds, Policy};
use ipam::BootId;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc, watch};

use crate::aftercare::Duties;
use crate::args::{Args, Command, Output};
use crate::board::Board;
use crate::metrics::Metrics;
use crate::npn::NpnFile;
use crate::reconcile::{Reconciler, make_directory};
use crate::settings::Settings;
use crate::verbs::Intake;
use crate::wake::Loop;
use crate::world::World;
use crate::{aftercare, gather, logging, server, show, verbs};

/// How long work in progress may take when the agent is told to stop. Files are replaced whole and the kernel's steps are
/// found again by the next agent, so nothing is lost by not waiting longer.
const FAREWELL: Duration = Duration::from_millis(1000);

/// Previews waiting for their turn.
const PREVIEWS: usize = 4;

/// Does what the command line says.
///
/// # Errors
/// When it cannot be done; the agent itself only ends with one when it cannot work at all.
pub fn run(args: Args) -> anyhow::Result<()> {
    let settings = Arc::new(Settings::new(args.options).context("reading the options")?);
    let text = match args.command.unwrap_or(Command::Run) {
        Command::Run => return stay(settings),
        Command::Status(Output { output }) => show::status(&settings, output)?,
        Command::Pools(Output { output }) => show::pools(&settings, output)?,
        Command::Plan(Output { output }) => show::plan(&settings, output)?,
    };
    use std::io::Write as _;
    // `… | head` closes the pipe, which is no failure.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

fn stay(settings: Arc<Settings>) -> anyhow::Result<()> {
    logging::start(settings.log_level);
    for directory in [&settings.state_dir, &settings.data_dir] {
        make_directory(directory).with_context(|| format!("creating {}", directory.display()))?;
    }
    let _lock = only_agent(&settings.state_dir)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .thread_stack_size(1 << 20)
        .build()
        .context("starting the runtime")?;
    let result = runtime.block_on(agent(settings));
    runtime.shutdown_timeout(FAREWELL);
    result
}

async fn agent(settings: Arc<Settings>) -> anyhow::Result<()> {
    let mut term = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut int = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let boot = BootId::current().context("reading the boot id")?;
    let metrics = Arc::new(Metrics::default());
    let (worlds_in, worlds) = watch::channel(World::default());
    let (passes_in, passes) = watch::channel(None);
    let (previews_in, previews) = mpsc::channel(PREVIEWS);
    let (plugged, published) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let board = Arc::new(Board {
        state_dir: settings.state_dir.clone(),
        boot: boot.clone(),
        started: Instant::now(),
        resync: settings.resync,
        metrics: metrics.clone(),
        worlds: worlds.clone(),
        passes,
        previews: previews_in,
    });
    let port = TcpListener::bind(settings.listen)
        .await
        .with_context(|| format!("listening on {} (LISTEN chooses another address)", settings.listen))?;
    let path = settings.socket();
    let socket = server::socket(&path).with_context(|| format!("listening on {}", path.display()))?;
    let records = verbs::listen(&settings.state_dir)?;
    let metadata = Imds::new(&settings.imds_base_url, Policy::default()).context("setting up the metadata client")?;
    let npns = NpnFile::new(&settings.npn_file);
    let reconciler = Reconciler::new(settings.clone()).context("reading the boot id")?;
    let duties = Arc::new(Duties::default());
    let work = Loop {
        reconciler,
        settings: settings.clone(),
        metrics: metrics.clone(),
        worlds,
        plugged: plugged.clone(),
        published: published.clone(),
        previews,
        duties: duties.clone(),
        passes: passes_in,
    };
    let intake = Arc::new(Intake::new(&settings.state_dir, metrics.clone(), duties.clone()));
    let worker = aftercare::Worker::new(&settings.state_dir, &settings.sysctl_root, boot, metrics.clone());
    let outlets = gather::Outlets { worlds: worlds_in, plugged, published };

    tracing::info!(
        event = "agent.started",
        version = env!("CARGO_PKG_VERSION"),
        listen = %settings.listen,
        state_dir = %settings.state_dir.display(),
        npn_file = %settings.npn_file.display(),
    );
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
        () = gather::run(metadata, npns, settings, metrics.clone(), outlets) => bail!("the sources' task ended"),
        ended = work.run() => bail!("the reconcile loop ended: {}", ended.err().map_or("no cause".into(), |error| error.to_string())),
        ended = verbs::run(records, intake) => ended.context("reading the plugins' records")?,
        ended = aftercare::run(duties, worker) => ended.context("looking after addresses")?,
        () = server::serve_port(port, board.clone()) => bail!("the port's server ended"),
        () = server::serve_socket(socket, board) => bail!("the socket's server ended"),
    }
    // Nothing is undone: pods live on, and so do the host's routes.
    tracing::info!(event = "agent.stopping");
    let _ = std::fs::remove_file(path);
    Ok(())
}

/// Two agents would write the same files and undo each other. The lock goes with the process.
fn only_agent(state_dir: &Path) -> anyhow::Result<File> {
    let path = state_dir.join("agent.lock");
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
