//! Wiring: parses the command line, runs the command, prints its answer.

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow, bail};
use api::bundle::BUNDLE_NODES_MAX;
use clap::Parser as _;
use command::page::Page;
use tokio::time::timeout;
use vcn::printable;

use crate::answer::{Answer, Exit, Style};
use crate::args::capture::CaptureArgs;
use crate::args::nettest::NetTestArgs;
use crate::args::task::TaskRequest;
use crate::args::{Args, BundleArgs, Command, Format};
use crate::bundle::file::is_stdout;
use crate::cluster::Cluster;
use crate::commands::{bundle, capture, connection, explain, gpus, nettest, node, policy, status, stop, task, vnics};
use crate::ends::{Source, Target};
use crate::failure;
use crate::probe_spec;
use crate::table::paint;

/// For a command with all its requests: more than a network test takes.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(6);

/// For a bundle or a capture: more than the leader takes for one.
const BUNDLE_TIMEOUT: Duration = Duration::from_mins(15);

/// For a NodeTask: the drain and the proof of a reboot need three hours at most. The task goes on when the command ends.
const TASK_TIMEOUT: Duration = Duration::from_hours(12);

/// Runs the command of the command line.
///
/// # Errors
/// When it fails.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<Exit> {
    let args = match Args::try_parse_from(arguments) {
        Ok(args) => args,
        Err(error) => {
            // `… | head` closes the pipe, which is not a failure.
            let _ = error.print();
            return Ok(if error.use_stderr() { Exit::Usage } else { Exit::Fine });
        }
    };
    // The second call of a process fails, which is harmless.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    let cluster = Cluster::new(args.target);
    let longest = match args.command {
        Command::Bundle(_) | Command::Capture(_) => BUNDLE_TIMEOUT,
        Command::Restart(_) | Command::Grow(_) | Command::Reboot(_) => TASK_TIMEOUT,
        _ => COMMAND_TIMEOUT,
    };
    let command = async {
        match args.command {
            Command::Status(args) => print(&status::run(&cluster, &args).await?, args.output.format),
            Command::Gpus(args) => print(&gpus::run(&cluster, &args).await?, args.output.format),
            Command::Node(args) => print(&node::run(&cluster, &args.name).await?, args.output.format),
            Command::Policy(args) => print(&policy::run(&cluster, args.name.as_deref()).await?, args.output.format),
            Command::Task(args) => print(&task::run(&cluster, args.name.as_deref()).await?, args.output.format),
            Command::Restart(args) => match args.request() {
                Ok(request) => create_task(&cluster, &request).await,
                Err(why) => Ok(failed(&anyhow!(why), Exit::Usage)),
            },
            Command::Grow(args) => create_task(&cluster, &args.request()).await,
            Command::Reboot(args) => create_task(&cluster, &args.request()).await,
            Command::Stop(args) => print(&stop::run(&cluster, args.off, &args.reason).await?, args.output.format),
            Command::Vnics(args) => print(&vnics::run(&cluster, &args).await?, args.output.format),
            Command::Nettest(args) => network_test(&cluster, &args).await,
            Command::Bundle(args) => write_bundle(&cluster, &args).await,
            Command::Capture(args) => write_capture(&cluster, &args).await,
            Command::Explain(args) => print(&explain::run(&args.words.join(" ")), args.output.format),
        }
    };
    let exit = runtime.block_on(async {
        let ended = timeout(longest, command).await;
        ended.unwrap_or_else(|_| bail!("no complete answer within {} s", longest.as_secs()))
    });
    // A lookup of a name may hang in a thread.
    runtime.shutdown_background();
    exit
}

/// Tests a connection: between nodes by a NetworkTest; with a Pod or a Service at an end, first by the objects.
async fn network_test(cluster: &Cluster, args: &NetTestArgs) -> anyhow::Result<Exit> {
    let ends = (Source::read(&args.from), Target::read(&args.to));
    let (from, to) = match ends {
        (Ok(from), Ok(to)) => (from, to),
        (Err(why), _) | (_, Err(why)) => return Ok(failed(&anyhow!(why), Exit::Usage)),
    };
    if let (Source::Node(_), Target::Other(_)) = (&from, &to) {
        return match probe_spec::object(args) {
            Ok(test) => match nettest::run(cluster, args, test).await {
                Ok(result) => print(&result, args.output.format),
                Err(error) => Ok(failed(&error, nettest::exit_of(&error))),
            },
            Err(error) => Ok(failed(&error, Exit::Usage)),
        };
    }
    if args.throughput.is_some() {
        return Ok(failed(&anyhow!("throughput is measured between Nodes"), Exit::Usage));
    }
    if matches!(to, Target::Service { .. }) && (args.port.is_some() || args.mtu) {
        return Ok(failed(&anyhow!("a Service has ports of its own: service/NAMESPACE/NAME:PORT"), Exit::Usage));
    }
    match connection::run(cluster, args, &from, &to).await {
        Ok(result) => print(&result, args.output.format),
        Err(error) => Ok(failed(&error, nettest::exit_of(&error))),
    }
}

async fn create_task(cluster: &Cluster, request: &TaskRequest) -> anyhow::Result<Exit> {
    print(&task::create(cluster, request).await?, request.nodes.output.format)
}

async fn write_bundle(cluster: &Cluster, args: &BundleArgs) -> anyhow::Result<Exit> {
    if args.node.len() > BUNDLE_NODES_MAX {
        return Ok(failed(&anyhow!("a bundle has at most {BUNDLE_NODES_MAX} nodes"), Exit::Usage));
    }
    let bundle = bundle::run(cluster, args).await?;
    summarize(&bundle, &args.file, args.output.format)
}

async fn write_capture(cluster: &Cluster, args: &CaptureArgs) -> anyhow::Result<Exit> {
    let capture = capture::run(cluster, args).await?;
    summarize(&capture, &args.file, args.output.format)
}

/// Prints what a file has, where the file is not.
fn summarize(answer: &impl Answer, file: &Path, format: Format) -> anyhow::Result<Exit> {
    if is_stdout(file) {
        eprint!("{}", text(answer, format, false)?);
        return Ok(answer.exit());
    }
    print(answer, format)
}

fn failed(error: &anyhow::Error, exit: Exit) -> Exit {
    eprintln!("kubectl oke-node: {}", words(error));
    exit
}

/// An error for a terminal: the API server repeats what others wrote.
pub fn words(error: &anyhow::Error) -> String {
    printable(&failure::words(error)).into_owned()
}

fn print(answer: &impl Answer, format: Format) -> anyhow::Result<Exit> {
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let text = text(answer, format, std::io::stdout().is_terminal() && !is_plain)?;
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    Ok(answer.exit())
}

fn text(answer: &impl Answer, format: Format, is_colored: bool) -> anyhow::Result<String> {
    Ok(match format {
        Format::Json => serde_json::to_string_pretty(answer).context("writing JSON")? + "\n",
        Format::Yaml => serde_yaml_ng::to_string(answer).context("writing YAML")?,
        Format::Table | Format::Wide => {
            let mut page = if is_colored { Page::colored(paint) } else { Page::default() };
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let now_unix_millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
            answer.show(&mut page, Style { wide: format == Format::Wide, now_unix_millis });
            page.into_text()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_a_network_test_is_printable() {
        let error = anyhow::anyhow!("\u{1b}[2Jready\n\u{200b}\u{feff}\u{202e}").context("creating a NetworkTest");
        let expected = r"creating a NetworkTest: \u{1b}[2Jready\n\u{200b}\u{feff}\u{202e}";
        assert_eq!(words(&error), expected);
    }
}
