//! How the nodes of a NodePolicy get its settings.
#![expect(unreachable_pub, reason = "KubeSchema writes a public copy of each struct into a function")]

use std::time::Duration;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::schema;

/// A canary first, then the others in batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// The first nodes; one node for 600 seconds if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
    /// How many selected nodes may change, fail or be NotReady at the same time; 5% if absent. A number or a percentage, rounded up
    /// to at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::node_share")]
    pub max_unavailable: Option<NodeShare>,
    /// For how many seconds a node is watched after it has the settings, 5 to 86400; 120 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<5, 86400>")]
    pub soak_seconds: Option<u32>,
    /// How many nodes after the canary may fail, 0 to 9; 0 if absent. A failed canary always ends the rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<0, 9>")]
    pub max_failures: Option<u8>,
    /// What happens after too many failures: Rollback (nodes get the last settings that worked) or Hold (nodes keep what they
    /// have); Rollback if absent.
    #[serde(default, skip_serializing_if = "FailureAction::is_rollback")]
    pub on_failure: FailureAction,
}

/// The first nodes of a rollout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Canary {
    /// How many, 1 to 10; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1, 10>")]
    pub nodes: Option<u8>,
    /// For how many seconds they are watched before any other node changes, 60 to 86400: a node is NotReady about 45 seconds after
    /// its kubelet fell silent. 600 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<60, 86400>")]
    pub soak_seconds: Option<u32>,
}

/// What happens after too many failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FailureAction {
    /// Nodes get the last settings that worked.
    #[default]
    Rollback,
    /// Nodes keep what they have.
    Hold,
}

/// A part of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeShare {
    /// A number of nodes.
    Count(u32),
    /// So many of a hundred.
    Percent(u8),
}

impl Rollout {
    /// How many nodes are canaries.
    pub fn canaries(&self) -> usize {
        self.canary.and_then(|canary| canary.nodes).unwrap_or(1).max(1).into()
    }

    /// How long canaries are watched.
    pub fn canary_soak(&self) -> Duration {
        Duration::from_secs(self.canary.and_then(|canary| canary.soak_seconds).unwrap_or(600).into())
    }

    /// How long the other nodes are watched.
    pub fn soak(&self) -> Duration {
        Duration::from_secs(self.soak_seconds.unwrap_or(120).into())
    }

    /// How many of so many nodes may be unavailable: at least one.
    pub fn max_unavailable(&self, nodes: usize) -> usize {
        match self.max_unavailable.unwrap_or(NodeShare::Percent(5)) {
            NodeShare::Count(count) => usize::try_from(count).unwrap_or(usize::MAX),
            NodeShare::Percent(percent) => nodes.saturating_mul(percent.into()).div_ceil(100),
        }
        .max(1)
    }

    /// How many nodes after the canary may fail.
    pub fn max_failures(&self) -> usize {
        self.max_failures.unwrap_or(0).into()
    }
}

impl FailureAction {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it by reference")]
    const fn is_rollback(&self) -> bool {
        matches!(self, Self::Rollback)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenShare {
    Count(u32),
    Text(String),
}

impl<'de> Deserialize<'de> for NodeShare {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = |text: &str| match text.strip_suffix('%') {
            Some(percent) => percent.parse().ok().map(Self::Percent),
            None => text.parse().ok().map(Self::Count),
        };
        match WrittenShare::deserialize(deserializer)? {
            WrittenShare::Count(count) => Ok(Self::Count(count)),
            WrittenShare::Text(text) => {
                read(&text).ok_or_else(|| serde::de::Error::custom("neither a number nor a percentage"))
            }
        }
    }
}

impl Serialize for NodeShare {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u32(*count),
            Self::Percent(percent) => serializer.collect_str(&format_args!("{percent}%")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_of_nodes_is_rounded_up_to_at_least_one() {
        let share = |text: &str| serde_json::from_str::<NodeShare>(text).ok();
        let of =
            |text: &str, nodes| Rollout { max_unavailable: share(text), ..Rollout::default() }.max_unavailable(nodes);
        for (text, nodes, expected) in [
            (r#""5%""#, 10_000, 500),
            (r#""5%""#, 41, 3),
            (r#""5%""#, 3, 1),
            (r#""100%""#, 3, 3),
            ("2", 1, 2),
            ("0", 9, 1),
            (r#""7""#, 9, 7),
            ("null", 40, 2),
            (r#""5%""#, 0, 1),
        ] {
            assert_eq!(of(text, nodes), expected, "{text} of {nodes}");
        }
        for text in [r#""%""#, r#""-1""#, "-1", r#""300%""#, "1.5", r#""x%""#] {
            assert_eq!(share(text), None, "{text}");
        }
        for text in [r#""5%""#, "3"] {
            assert_eq!(serde_json::to_string(&share(text).unwrap()).unwrap(), text);
        }
    }
}
