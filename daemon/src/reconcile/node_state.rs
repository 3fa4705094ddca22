//! The node that a reconcile works on: its settings, its files of this boot, its kernel.

use std::sync::Arc;

use datapath::{Error, Places};
use ipam::{BootId, Pools, Store};

use crate::settings::Settings;

#[derive(Debug)]
pub(super) struct NodeState {
    pub(super) settings: Arc<Settings>,
    pub(super) boot: BootId,
    pub(super) store: Store,
}

impl NodeState {
    pub(super) fn new(settings: Arc<Settings>) -> Result<Self, ipam::Error> {
        let boot = BootId::current()?;
        let store = Store::new(&settings.state_dir, boot.clone());
        Ok(Self { settings, boot, store })
    }

    /// The addresses that pods may get, as published in this boot.
    pub(super) fn pools(&self) -> Result<Pools, ipam::Error> {
        Pools::read(&self.settings.state_dir, &self.boot)
    }

    /// The host as a place of objects.
    pub(super) fn places(&self) -> Result<Places, Error> {
        let sysctl_root = &self.settings.sysctl_root;
        Places::host(sysctl_root).map_err(|source| Error::Observe { what: "the host".into(), source })
    }
}
