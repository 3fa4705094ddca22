//! The settings, validated: the only configuration that the rest of the controller sees.

use std::ops::Deref;

use resident::args::{NodeIpMissing, Toggle};
use resident::config::ProgramSettings;
use resident::scrape::MetricsPort;
use tunables::files::FileGrant;

use crate::args::Options;
use crate::cluster::oke_repair::OkeRepair;
use crate::fleet::poll::PollLimits;
use crate::node_task::EnabledActions;

/// All settings: the options, each valid by itself, and what follows from several.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    options: Options,
    /// Where metrics are served to other machines.
    pub metrics_port: Option<MetricsPort>,
}

impl Deref for Settings {
    type Target = Options;

    fn deref(&self) -> &Options {
        &self.options
    }
}

impl Settings {
    /// How often agents are polled.
    pub(crate) const fn poll_limits(&self) -> PollLimits {
        PollLimits { interval: self.options.agent_poll, silence: self.options.agent_silent }
    }

    /// How a repair of OKE is recognized.
    pub(crate) fn oke_repair(&self) -> OkeRepair {
        OkeRepair::new(self.options.oke_repair_taint.clone(), self.options.oke_repair_configs == Toggle::On)
    }

    /// Which actions of NodeTasks are enabled.
    pub(crate) fn enabled_actions(&self) -> EnabledActions {
        let is_any = self.options.operations.tasks == Toggle::On;
        EnabledActions { is_any, is_reboot: is_any && self.options.operations.task_reboots == Toggle::On }
    }
}

impl Settings {
    /// What the cluster's owner permits of files.
    pub(crate) fn file_grants(&self) -> Vec<FileGrant> {
        let switches = &self.options.operations;
        let grants = [(switches.host_files, FileGrant::HostFiles), (switches.host_code, FileGrant::HostCode)];
        grants.into_iter().filter(|(switch, _)| *switch == Toggle::On).map(|(_, grant)| grant).collect()
    }
}

impl ProgramSettings for Settings {
    type Options = Options;
    type Error = NodeIpMissing;

    fn from_options(options: Options) -> Result<Self, NodeIpMissing> {
        Ok(Self { metrics_port: options.resident.metrics()?, options })
    }
}

#[cfg(test)]
mod tests {
    use resident::config::Layers;

    use super::*;
    use crate::args::keys;

    fn read(flags: &[(&str, &str)]) -> Result<Settings, String> {
        let flags = flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let read = Layers { flags, ..Layers::default() }.read(&keys());
        read.settings(&keys()).map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn an_empty_value_is_not_set() {
        let settings = read(&[("CLUSTER_ID", ""), ("POD_NAME", ""), ("OCI_REGION", "")]).unwrap();
        assert_eq!((&settings.cluster_id, &settings.lease.identity, &settings.oci.region), (&None, &None, &None));
    }
}
