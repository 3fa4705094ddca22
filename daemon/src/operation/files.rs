//! Writes the files of policies on the host: an order, which the agent has, with the hash that the leader named. It runs in a Pod of its
//! own, as root without capabilities; the agent never writes these files.

mod change;
mod units;

use std::time::Duration;

use api::TaskReason;
use api::operation::OperationReport;
use installer::host_files::{Host, ORDER};
use ipam::read_state;
use nix::unistd::{SysconfVar, sysconf};
use systemd::Systemd;
use tunables::files::order::KubeletFacts;
use tunables::files::{FileGrant, FileOrder, HostUnit};

use super::Failure;
use super::shell::run;
use crate::args::FilesArgs;
use crate::reconcile::kernel_limits;
use change::{Change, Identity, Outcome, Timing};
use units::SystemdUnits;

/// For reading the kubelet's command line.
const READ_LIMIT: Duration = Duration::from_secs(10);

/// Applies an order to the host's files.
pub(super) async fn apply(systemd: &Systemd, arguments: &FilesArgs) -> Result<OperationReport, Failure> {
    let failed = |message: String| Failure { reason: TaskReason::OperationFailed, message };
    let host = Host::new(&arguments.root, &arguments.data);
    let text = read_state(&host.data(ORDER)).map_err(|error| failed(format!("read {ORDER}: {error}")))?;
    let order = FileOrder::read(&text, &arguments.sha256).map_err(failed)?;
    let grants: Vec<FileGrant> = arguments.grant.iter().filter_map(|word| FileGrant::from_word(word)).collect();
    let kubelet = match order.kubelet {
        Some(_) => facts(systemd).await?,
        None => KubeletFacts::default(),
    };
    let desired = order.desired(&grants, &kubelet);
    let (units, timing) = (SystemdUnits(systemd), Timing::default());
    let change = Change { host: &host, units: &units, timing };
    let identity = Identity { order: &arguments.sha256, cluster: &order.cluster, instance: order.instance.as_deref() };
    match change.apply(identity, &desired).await {
        Outcome::Applied(reports) => {
            let others: Vec<String> =
                reports.iter().map(|report| format!("{}: {}", report.path, report.message)).collect();
            let message = if others.is_empty() { "all files are applied".to_owned() } else { others.join("; ") };
            Ok(OperationReport::new(TaskReason::Succeeded, &message))
        }
        Outcome::RolledBack(why) => Err(failed(format!("rolled back: {why}"))),
        Outcome::Failed(why) => Err(failed(why)),
    }
}

/// The kubelet of this node.
async fn facts(systemd: &Systemd) -> Result<KubeletFacts, Failure> {
    let command = systemd.command_line(HostUnit::Kubelet.as_str()).await?;
    // Its flags may come from a file or a script, too: those of the running process are all of them.
    let running = match command.main_pid {
        0 => Vec::new(),
        pid => {
            let path = format!("/proc/{pid}/cmdline");
            let output = run(systemd, "kubelet-flags", &["/usr/bin/cat", &path], READ_LIMIT).await?;
            output.success("cat")?.split('\0').skip(1).filter(|word| !word.is_empty()).map(str::to_owned).collect()
        }
    };
    let memory = Some(kernel_limits::memory()).filter(|memory| *memory > 0);
    let processors = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten().and_then(|count| u64::try_from(count).ok());
    let unreadable = || Failure { reason: TaskReason::OperationFailed, message: "read the node's memory".to_owned() };
    Ok(KubeletFacts {
        start: command.arguments,
        environment: command.environment,
        running,
        processors: processors.unwrap_or(1),
        memory: memory.ok_or_else(unreadable)?,
    })
}
