//! What the controller sends to an agent: paths, and the query of each request for a summary.

/// Where an agent answers with its summary.
pub const SUMMARY_PATH: &str = "/v1/summary";

/// Where an agent takes the controller's rules of health signals: a file of rules, or nothing where the controller has none.
pub const RULES_PATH: &str = "/v1/rules";

/// The longest name of a runtime.
const RUNTIME_MAX: usize = 32;

/// The query of a request for a summary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PollQuery {
    /// Whether the agent may repair on this node for a few minutes.
    pub may_repair: bool,
    /// What the Node has.
    pub node: NodeReport,
}

/// What the controller reports about the Node. Agents may not read Nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeReport {
    /// The memory for pods (`status.allocatable`, with huge pages), in bytes.
    pub allocatable_memory: Option<u64>,
    /// The GPUs for pods, where device plugins offer whole ones.
    pub allocatable_gpus: Option<u64>,
    /// The runtime's name, such as `cri-o` (`status.nodeInfo.containerRuntimeVersion`).
    pub runtime: Option<String>,
}

impl NodeReport {
    /// The name of the runtime in a version such as `cri-o://1.34.0`, if it is one.
    pub fn runtime_of(version: &str) -> Option<String> {
        let name = version.split("://").next()?;
        let is_plain = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '-';
        let is_name = !name.is_empty() && name.len() <= RUNTIME_MAX && name.chars().all(is_plain);
        is_name.then(|| name.to_owned())
    }

    /// Takes what a later report has.
    pub fn update(&mut self, later: Self) {
        self.allocatable_memory = later.allocatable_memory.or(self.allocatable_memory);
        // A report without GPUs has the memory at least; a request without any report changes nothing.
        if later.allocatable_memory.is_some() {
            self.allocatable_gpus = later.allocatable_gpus;
        }
        if later.runtime.is_some() {
            self.runtime = later.runtime;
        }
    }
}

impl PollQuery {
    /// The path of the request, with this query. Agents of 0.2.0 read a permit only if it stands alone; newer ones keep the last
    /// report about the Node.
    pub fn path(&self) -> String {
        let repairs = self.may_repair.then(|| "repairs=allow".to_owned());
        let NodeReport { allocatable_memory, allocatable_gpus, runtime } = &self.node;
        let allocatable = allocatable_memory.map(|bytes| format!("allocatable={bytes}"));
        let gpus = allocatable_gpus.map(|count| format!("gpus={count}"));
        let runtime = runtime.as_ref().map(|runtime| format!("runtime={runtime}"));
        let of_node = allocatable.into_iter().chain(gpus).chain(runtime).filter(|_| !self.may_repair);
        let parts: Vec<String> = repairs.into_iter().chain(of_node).collect();
        format!("{SUMMARY_PATH}?{}", parts.join("&")).trim_end_matches('?').to_owned()
    }

    /// Reads a query; unknown and invalid parts are ignored.
    pub fn read(query: &str) -> Self {
        let part = |name: &str| query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        Self {
            may_repair: part("repairs") == Some("allow"),
            node: NodeReport {
                allocatable_memory: part("allocatable").and_then(|bytes| bytes.parse().ok()),
                allocatable_gpus: part("gpus").and_then(|count| count.parse().ok()),
                runtime: part("runtime").and_then(NodeReport::runtime_of),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_is_read_as_written_and_unknown_parts_are_ignored() {
        for may_repair in [false, true] {
            for (allocatable_memory, runtime) in [(None, None), (Some(0), Some("cri-o")), (Some(64_172_851_200), None)]
            {
                let allocatable_gpus = allocatable_memory.filter(|bytes| *bytes > 0).map(|_| 8);
                let node = NodeReport { allocatable_memory, allocatable_gpus, runtime: runtime.map(str::to_owned) };
                let path = PollQuery { may_repair, node: node.clone() }.path();
                let (path, text) = path.split_once('?').unwrap_or((&path, ""));
                let node = if may_repair { NodeReport::default() } else { node };
                let query = PollQuery { may_repair, node };
                assert_eq!((path, PollQuery::read(text)), (SUMMARY_PATH, query.clone()));
                assert_eq!(PollQuery::read(&format!("new=1&{text}&newer")), query, "{text}");
            }
        }
        assert_eq!(PollQuery::read("repairs=deny&allocatable=much&runtime=%0a"), PollQuery::default());
        assert_eq!(PollQuery::default().path(), SUMMARY_PATH);
    }

    #[test]
    fn runtime_is_named_as_in_the_node() {
        let names = ["cri-o://1.34.0", "containerd://2.1.5", "docker://24.0.7", "", "://1", "a b://1", &"x".repeat(33)];
        let expected = [Some("cri-o"), Some("containerd"), Some("docker"), None, None, None, None];
        assert_eq!(names.map(NodeReport::runtime_of), expected.map(|name| name.map(str::to_owned)));
    }
}
