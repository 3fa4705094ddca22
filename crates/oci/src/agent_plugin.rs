//! The Oracle Cloud Agent of an instance: which plugins are enabled, and what they report.

use serde::{Deserialize, Serialize};

/// What an instance's `agentConfig` says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentConfig {
    /// Whether no plugin may run.
    #[serde(rename = "areAllPluginsDisabled", deserialize_with = "crate::vnic::none_is_empty")]
    pub all_disabled: bool,
    /// Plugins that were switched on or off; others have Oracle's default.
    #[serde(deserialize_with = "crate::vnic::none_is_empty")]
    pub plugins_config: Vec<PluginConfig>,
}

/// A plugin that was switched on or off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PluginConfig {
    /// Its name, such as `Compute HPC RDMA Authentication`.
    pub name: String,
    /// The state that an operator set: ENABLED or DISABLED.
    pub desired_state: String,
}

/// What a plugin reported last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentPlugin {
    /// The name of the plugin.
    pub name: String,
    /// RUNNING, STOPPED, NOT_SUPPORTED or INVALID.
    pub status: String,
    /// When it reported that (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_last_updated_utc: Option<String>,
}

impl AgentConfig {
    /// The plugins that were switched on and may run.
    pub fn enabled_plugins(&self) -> impl Iterator<Item = &str> {
        let enabled =
            self.plugins_config.iter().filter(|plugin| !self.all_disabled && plugin.desired_state == "ENABLED");
        enabled.map(|plugin| plugin.name.as_str())
    }
}
