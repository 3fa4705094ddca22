//! The arguments of the commands for NodeTasks.

use api::node_task::{GrowRootDisk, NodeUnit, Reboot, RestartUnit, TaskAction};

use super::types::{Output, node_name, object_name};

/// On which nodes.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct TaskNodes {
    /// All Nodes with these labels, instead of one Node: KEY=VALUE,...
    #[arg(short = 'l', long = "selector", value_name = "KEY=VALUE,...")]
    pub labels: Option<String>,
    /// How many nodes at once, 1 to 16
    #[arg(long, requires = "labels", value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub concurrency: Option<u8>,
    /// How many nodes may fail before no further node starts
    #[arg(long, requires = "labels", value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(..=1000))]
    pub max_failures: Option<u16>,
    /// Do not wait for the end; `kubectl oke-node task NAME` shows the progress
    #[arg(long)]
    pub no_wait: bool,
    /// The output format.
    #[command(flatten)]
    pub output: Output,
}

/// Which unit.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RestartArgs {
    /// The Node's name (not with -l) and the unit: kubelet, crio, containerd, oracle-cloud-agent or chronyd
    #[arg(value_name = "NODE|UNIT", num_args = 1..=2, required = true)]
    pub words: Vec<String>,
    /// The nodes.
    #[command(flatten)]
    pub nodes: TaskNodes,
}

/// Whose root disk.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GrowArgs {
    /// The Node's name; not with -l
    #[arg(value_parser = node_name, value_name = "NODE", required_unless_present = "labels", conflicts_with = "labels")]
    pub node: Option<String>,
    /// The nodes.
    #[command(flatten)]
    pub nodes: TaskNodes,
}

/// Which node is rebooted, and how it is drained.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RebootArgs {
    /// The Node's name
    #[arg(value_parser = node_name, value_name = "NODE")]
    pub node: String,
    /// How many minutes the eviction of its pods may take [default: 15]
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u8).range(1..=120))]
    pub drain_minutes: Option<u8>,
    /// Evict pods with emptyDir volumes, too: the data in them is lost
    #[arg(long)]
    pub delete_emptydir_data: bool,
    /// Evict pods without a controller, too: nothing recreates them
    #[arg(long)]
    pub evict_bare_pods: bool,
    /// Do not wait for the end; `kubectl oke-node task NAME` shows the progress
    #[arg(long)]
    pub no_wait: bool,
    /// The output format.
    #[command(flatten)]
    pub output: Output,
}

/// Which task.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TaskArgs {
    /// The NodeTask's name; without it, the command lists all
    #[arg(value_parser = object_name, value_name = "NAME")]
    pub name: Option<String>,
    /// The output format.
    #[command(flatten)]
    pub output: Output,
}

/// An action on nodes, as typed.
#[derive(Clone, Debug)]
pub(crate) struct TaskRequest {
    pub action: TaskAction,
    pub node: Option<String>,
    pub nodes: TaskNodes,
}

impl RestartArgs {
    /// The action.
    ///
    /// # Errors
    /// With what is wrong on the command line.
    pub(crate) fn request(self) -> Result<TaskRequest, String> {
        let (node, unit) = match (self.words.as_slice(), &self.nodes.labels) {
            ([unit], Some(_)) => (None, unit),
            ([node, unit], None) => (Some(node_name(node)?), unit),
            ([_], None) => {
                return Err("name the Node and the unit, or select Nodes with -l and name the unit".to_owned());
            }
            _ => return Err("-l selects Nodes: name only the unit".to_owned()),
        };
        let full = if unit.contains('.') { unit.clone() } else { format!("{unit}.service") };
        let unit = NodeUnit::from_word(&full).ok_or_else(|| {
            format!("a task cannot restart {full}; the units are {}", NodeUnit::ALL.map(NodeUnit::as_str).join(", "))
        })?;
        let action = TaskAction { restart_unit: Some(RestartUnit { unit }), ..TaskAction::default() };
        Ok(TaskRequest { action, node, nodes: self.nodes })
    }
}

impl GrowArgs {
    pub(crate) fn request(self) -> TaskRequest {
        let action = TaskAction { grow_root_disk: Some(GrowRootDisk {}), ..TaskAction::default() };
        TaskRequest { action, node: self.node, nodes: self.nodes }
    }
}

impl RebootArgs {
    pub(crate) fn request(self) -> TaskRequest {
        let reboot = Reboot {
            drain_minutes: self.drain_minutes,
            delete_empty_dir_data: self.delete_emptydir_data,
            evict_bare_pods: self.evict_bare_pods,
        };
        let action = TaskAction { reboot: Some(reboot), ..TaskAction::default() };
        let nodes = TaskNodes { no_wait: self.no_wait, output: self.output, ..TaskNodes::default() };
        TaskRequest { action, node: Some(self.node), nodes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_takes_a_node_or_a_selector_and_a_listed_unit() {
        let request = |words: &[&str], labels: Option<&str>| {
            let nodes = TaskNodes { labels: labels.map(str::to_owned), ..TaskNodes::default() };
            RestartArgs { words: words.iter().map(|word| (*word).to_owned()).collect(), nodes }.request()
        };
        let unit =
            |request: Result<TaskRequest, String>| request.map(|it| (it.node, it.action.restart_unit.unwrap().unit));
        assert_eq!(unit(request(&["10.0.0.2", "crio"], None)), Ok((Some("10.0.0.2".to_owned()), NodeUnit::Crio)));
        assert_eq!(unit(request(&["kubelet.service"], Some("pool=web"))), Ok((None, NodeUnit::Kubelet)));
        for (words, labels) in [
            (&["crio"][..], None),
            (&["10.0.0.2", "crio"], Some("pool=web")),
            (&["10.0.0.2", "sshd"], None),
            (&["10.0.0.2/x", "crio"], None),
        ] {
            assert!(request(words, labels).is_err(), "{words:?}");
        }
    }
}
