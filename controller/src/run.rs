//! Wiring: which tasks exist and what they share.
//!
//! ```text
//!   run ─▶ server (health, metrics), configuration ─▶ OCI client ─▶ lease ─▶ lead: watches ─▶ store ─▶ queue ─▶ workers
//!                                                                    └─ lost: the process exits at once
//! ```

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use backoff::Backoff;
use channel::Identity;
use clap::FromArgMatches as _;
use kube::Client;
use oci::Oci;
use resident::config::Layers;
use resident::explain;
use resident::reload::RunningConfiguration;
use resident::{command_line, logging, reload, scrape, server};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::args::{self, Args, Command, DEFAULT_CONFIG};
use crate::cloud::{self, NoClient};
use crate::cluster::client;
use crate::fleet::keys::KeyEntry;
use crate::fleet::run::FleetMember;
use crate::fleet::view::FleetView;
use crate::leader::lease::{self, Lease};
use crate::leader::{self, Leader};
use crate::malloc;
use crate::plan_command;
use crate::settings::Settings;
use crate::status_server::{Role, StatusServer};
use backoff::chance;

/// The first backoff between attempts to set the OCI client up.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// The exit status, for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: the program did what it was started for.
    Fine = 0,
    /// Wrong command line or configuration.
    Usage = 2,
}

/// Runs the command of the command line.
///
/// # Errors
/// When it fails, or the Lease was lost.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<Exit> {
    let keys = args::keys();
    let arguments = arguments.into_iter().collect();
    let read = command_line::read::<Args>(&keys, DEFAULT_CONFIG, arguments, command_line::environment());
    let (matches, layers) = match read {
        Ok(read) => read,
        Err(error) => {
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Fine };
            // `… | head` closes the pipe, which is not a failure.
            let _ = error.print();
            return Ok(exit);
        }
    };
    let command = match matches.subcommand() {
        Some(_) => Command::from_arg_matches(&matches)?,
        None => Command::Run,
    };
    if let Command::Config(config_args) = command {
        let (text, right) = explain::render::<Settings>(&keys, &layers, &config_args)?;
        let _ = std::io::stdout().write_all(text.as_bytes());
        return Ok(if right { Exit::Fine } else { Exit::Usage });
    }
    match RunningConfiguration::<Settings>::start(keys, layers) {
        Ok((settings, live)) => match command {
            Command::Plan(plan_args) => in_runtime(plan_command::run(settings, plan_args)).map(|()| Exit::Fine),
            _ => match in_runtime(controller(settings, live))? {
                Some(exit) => Ok(exit),
                None => Err(reload::restart()).context("executing the controller again"),
            },
        },
        Err(problems) => {
            problems.iter().for_each(|problem| eprintln!("oke-node-controller: {problem}"));
            eprintln!(
                "oke-node-controller: nothing was started; `oke-node-controller config --explain` lists every key"
            );
            Ok(Exit::Usage)
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

fn in_runtime<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    // The second call of a process fails, which is harmless.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    malloc::one_for_all();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .build()
        .context("starting the runtime")?;
    let result = runtime.block_on(work);
    // The next leader finds requests in flight again; waiting for them would outlast the Lease.
    runtime.shutdown_background();
    result
}

/// Why the controller exits by itself.
enum ExitCause {
    /// Another replica may lead from now on.
    Lost(anyhow::Error),
    /// The configuration can never work.
    Misconfigured(anyhow::Error),
    /// A task ended that should not.
    Broken(anyhow::Error),
    /// Another replica should lead, because this one's node fails.
    HandedOver,
    /// Its configuration file changed.
    Reconfigured,
}

/// What a replica has before it leads.
struct Replica {
    client: Client,
    identity: String,
    status_server: Arc<StatusServer>,
    member: FleetMember,
}

/// Works until it is stopped; `None` when its configuration file changed.
async fn controller(settings: Settings, live: RunningConfiguration<Settings>) -> anyhow::Result<Option<Exit>> {
    logging::start(settings.resident.log_level);
    let mut term = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut int = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let status_server = Arc::new(StatusServer::default());
    let port = TcpListener::bind(settings.listen)
        .await
        .with_context(|| format!("listening on {} (LISTEN chooses another address)", settings.listen))?;
    let identity = settings.lease.identity.clone().unwrap_or_else(identity);
    let client = client::connect().await?;
    let (member, view_port) =
        member(&settings, &client, &identity, &status_server, configuration(live.layers())?).await?;
    tracing::info!(
        event = "controller.started",
        version = env!("CARGO_PKG_VERSION"),
        identity,
        listen = %settings.listen,
        lease = format!("{}/{}", settings.lease.namespace, lease::NAME),
    );
    // Not the client that retries: its backoff may outlast the Lease.
    let mut lease = Lease::new(client.clone(), &settings.lease, identity.clone(), chance);
    let replica = Replica { client, identity, status_server: status_server.clone(), member: member.clone() };
    let work = lead(replica, &settings, &mut lease);
    let metrics = status_server.metrics.clone();
    let reload = live.changed(settings.resident.reload_jitter().mul_f64(chance()), |trouble| {
        metrics.configuration_invalid.set(i64::from(trouble.is_some()));
        if let Some(message) = trouble {
            tracing::warn!(event = "config.invalid", message);
        }
    });
    // Cancel-safe: whichever ends first ends the process.
    let ended = tokio::select! {
        _ = term.recv() => None,
        _ = int.recv() => None,
        ended = work => Some(ended),
        () = reload => Some(ExitCause::Reconfigured),
        () = scrape::run(settings.metrics_port.clone(), status_server.clone()) => Some(ExitCause::Broken(anyhow::anyhow!("the metrics' server ended"))),
        () = published(&member.entry) => None,
        () = server::serve_view(view_port, member.view.clone()) => Some(ExitCause::Broken(anyhow::anyhow!("the view's server ended"))),
        () = server::serve_port(port, status_server.clone()) => Some(ExitCause::Broken(anyhow::anyhow!("the port's server ended"))),
    };
    match ended {
        Some(ExitCause::Lost(error)) => return Err(error),
        Some(ExitCause::Misconfigured(error)) => {
            eprintln!("oke-node-controller: {}", logging::chain(error.as_ref()));
            return Ok(Some(Exit::Usage));
        }
        // It keeps the Lease: the restarted process has the same name, the Pod's, and continues as the holder.
        Some(ExitCause::Reconfigured) if settings.lease.identity.is_some() => return Ok(None),
        // It waits for the Lease again, as a new process: no kubelet would start another one.
        Some(ExitCause::HandedOver) => {
            lease.hand_over().await;
            return Ok(None);
        }
        _ => {}
    }
    tracing::info!(event = "controller.stopping");
    lease.release().await;
    match ended {
        Some(ExitCause::Broken(error)) => Err(error),
        Some(ExitCause::Reconfigured) => Ok(None),
        _ => Ok(Some(Exit::Fine)),
    }
}

/// Waits for the Lease, and works while this replica holds it.
async fn lead(replica: Replica, settings: &Settings, lease: &mut Lease) -> ExitCause {
    let Replica { client, identity, status_server, member } = replica;
    // Before the Lease: a replica without a client leaves the Lease to others.
    let cloud = match connected(settings, &status_server, chance).await {
        Ok(cloud) => cloud,
        Err(error) => return ExitCause::Misconfigured(error),
    };
    lease
        .acquire(|holder| {
            status_server.set_role(Role::Standby);
            member.view.set_leader(holder);
        })
        .await;
    status_server.set_role(Role::Reading);
    tracing::info!(event = "lease.acquired");
    let leader =
        Leader { client, cloud, identity, status_server, settings: settings.clone(), member, term: lease.term() };
    // Cancel-safe: whichever ends first ends the process; another replica continues from what OCI and the API server have.
    tokio::select! {
        lost = lease.keep() => ExitCause::Lost(lost.context("the Lease is lost")),
        ended = leader::run(leader) => ExitCause::Broken(match ended {
            Ok(()) => return ExitCause::HandedOver,
            Err(error) => error,
        }),
    }
}

/// This replica as agents and `kubectl oke-node` know it, and the view's port.
async fn member(
    settings: &Settings,
    client: &Client,
    name: &str,
    status_server: &StatusServer,
    configuration: String,
) -> anyhow::Result<(FleetMember, TcpListener)> {
    let port = TcpListener::bind(settings.view_listen)
        .await
        .with_context(|| format!("listening on {} (VIEW_LISTEN chooses another address)", settings.view_listen))?;
    let identity = Identity::generate()?;
    let (namespace, metrics) = (settings.lease.namespace.clone(), status_server.metrics.clone());
    let entry = KeyEntry::new(client, &namespace, name.to_owned(), identity.fingerprint(), metrics);
    let view = Arc::new(FleetView::new(name.to_owned()));
    let rules = settings.health_rules.clone();
    Ok((FleetMember { identity, entry, view, namespace, rules, configuration }, port))
}

/// The settings that are set, for bundles.
fn configuration(layers: &Layers) -> anyhow::Result<String> {
    let keys = args::keys();
    let read = layers.read(&keys);
    let problems: Vec<String> = read.problems.iter().map(ToString::to_string).collect();
    let document = serde_json::json!({ "set": explain::set(&keys, &read.values), "problems": problems });
    serde_json::to_string_pretty(&document).context("writing the configuration as JSON")
}

/// Publishes the key; never returns. A replica that waits for the Lease does this too: agents know its key when it leads.
async fn published(entry: &KeyEntry) {
    entry.publish().await;
    std::future::pending().await
}

/// The client of the OCI API; retries until one can be built.
///
/// # Errors
/// When the configuration can never give one.
async fn connected(settings: &Settings, status_server: &StatusServer, chance: fn() -> f64) -> anyhow::Result<Oci> {
    let retry = Backoff { first: FIRST_RETRY.min(settings.pace.retry_most), cap: settings.pace.retry_most };
    let mut failures = 0_u32;
    loop {
        match cloud::connect(&settings.oci, status_server.metrics.clone()).await {
            Ok(cloud) => {
                status_server.waits_for(None);
                return Ok(cloud);
            }
            Err(error @ NoClient::Misconfigured(_)) => return Err(error.into_error()),
            Err(error @ NoClient::NotYet(_)) => {
                let why = logging::chain(error.into_error().as_ref());
                if status_server.waits_for(Some(why.clone())) {
                    tracing::warn!(event = "cloud.unreachable", error = why, "retried with backoff");
                }
            }
        }
        failures = failures.saturating_add(1);
        sleep(retry.delay(failures, chance())).await;
    }
}

/// A name that no other process has.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{}_{:06}", host.trim(), std::process::id(), (chance() * 999_999.0).round())
}
