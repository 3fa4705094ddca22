//! The node that a reconcile works on: its settings, its files of this boot, its kernel.

use std::sync::Arc;

use ipam::{BootId, Pools, Store};

use super::host::Host;
use crate::settings::Settings;

#[derive(Debug)]
pub(super) struct NodeState {
    pub(super) settings: Arc<Settings>,
    pub(super) boot: BootId,
    /// What pods hold.
    pub(super) store: Store,
    pub(super) host: Host,
}

impl NodeState {
    pub(super) fn new(settings: Arc<Settings>) -> Result<Self, ipam::Error> {
        let boot = BootId::current()?;
        let (store, host) = (Store::new(&settings.state_dir, boot.clone()), Host::new(&settings.sysctl_root));
        Ok(Self { settings, boot, store, host })
    }

    /// The addresses that pods may get, as published in this boot.
    pub(super) fn pools(&self) -> Result<Pools, ipam::Error> {
        Pools::read(&self.settings.state_dir, &self.boot)
    }
}
