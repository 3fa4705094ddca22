//! What the controller tells an agent: paths, and the query of each request for a summary.

/// Where an agent answers with its summary.
pub const SUMMARY_PATH: &str = "/v1/summary";

/// Where an agent takes the controller's rules of health signals: a file of rules, or nothing where the controller has none.
pub const RULES_PATH: &str = "/v1/rules";

/// The query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollQuery {
    /// Whether the agent may repair on this node for a few minutes.
    pub may_repair: bool,
    /// The memory that the Node has for pods (`status.allocatable`, with huge pages), in bytes. Agents may not read Nodes.
    pub allocatable_memory: Option<u64>,
}

impl PollQuery {
    /// The path of the request, with this query. Agents of 0.2.0 read a permit only if it stands alone; newer ones keep the last amount
    /// of memory.
    pub fn path(self) -> String {
        let repairs = self.may_repair.then(|| "repairs=allow".to_owned());
        let allocatable =
            self.allocatable_memory.filter(|_| !self.may_repair).map(|bytes| format!("allocatable={bytes}"));
        let parts: Vec<String> = repairs.into_iter().chain(allocatable).collect();
        format!("{SUMMARY_PATH}?{}", parts.join("&")).trim_end_matches('?').to_owned()
    }

    /// Reads a query; unknown and invalid parts are ignored.
    pub fn read(query: &str) -> Self {
        let part = |name: &str| query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        Self {
            may_repair: part("repairs") == Some("allow"),
            allocatable_memory: part("allocatable").and_then(|bytes| bytes.parse().ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_is_read_as_written_and_unknown_parts_are_ignored() {
        for may_repair in [false, true] {
            for allocatable_memory in [None, Some(0), Some(64_172_851_200)] {
                let path = PollQuery { may_repair, allocatable_memory }.path();
                let (path, text) = path.split_once('?').unwrap_or((&path, ""));
                let query = PollQuery { may_repair, allocatable_memory: allocatable_memory.filter(|_| !may_repair) };
                assert_eq!((path, PollQuery::read(text)), (SUMMARY_PATH, query));
                assert_eq!(PollQuery::read(&format!("new=1&{text}&newer")), query, "{text}");
            }
        }
        assert_eq!(PollQuery::read("repairs=deny&allocatable=much"), PollQuery::default());
        assert_eq!(PollQuery::default().path(), SUMMARY_PATH);
    }
}
