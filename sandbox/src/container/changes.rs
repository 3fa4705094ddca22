//! A container with one change: for tests that show what a setting of the manifest is for.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::{Container, Volume};

impl Container {
    /// The same without a capability, to see what breaks.
    pub fn without_capability(mut self, name: &str) -> Self {
        self.capabilities.retain(|capability| capability != name);
        self
    }

    /// The same with one more capability, as an overlay may grant it.
    pub fn with_capability(mut self, name: &str) -> Self {
        self.capabilities.push(name.to_owned());
        self
    }

    /// The same without a volume, to see what breaks.
    pub fn without_volume(mut self, host: &Path) -> Self {
        self.volumes.retain(|volume| volume.host != host);
        self
    }

    /// The same on a node that keeps a volume's directory elsewhere: for tests that have no files of a node's own.
    pub fn with_volume_at(mut self, host: &Path, elsewhere: &Path) -> Self {
        for volume in self.volumes.iter_mut().filter(|volume| volume.host == host) {
            elsewhere.clone_into(&mut volume.host);
        }
        self
    }

    /// The same with one more volume, writable, as an operator may add to the manifest.
    pub fn with_volume(mut self, host: &Path, mounted: &Path) -> Self {
        let (host, mounted) = (host.to_owned(), mounted.to_owned());
        self.volumes.push(Volume { host, mounted, read_only: false, create: true });
        self
    }

    /// The same in a cluster that has one of its ConfigMaps: a directory as the kubelet makes it of that.
    pub fn with_config_map(mut self, name: &str, directory: &Path) -> Self {
        let volume = |mounted: &PathBuf| {
            let (host, mounted) = (directory.to_owned(), mounted.clone());
            Volume { host, mounted, read_only: true, create: false }
        };
        self.volumes.extend(self.config_maps.get(name).map(volume));
        self
    }

    /// The same in a cluster: a directory with its service account's token, as the kubelet makes it, and where the API
    /// server is. Without this there is none.
    pub fn with_api_server(mut self, service_account: &Path, host: &str, port: &str) -> Self {
        if let Some(mounted) = self.service_account.clone() {
            let host = service_account.to_owned();
            self.volumes.push(Volume { host, mounted, read_only: true, create: false });
        }
        let variables = [("KUBERNETES_SERVICE_HOST", host), ("KUBERNETES_SERVICE_PORT", port)];
        self.environment.extend(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
        self
    }

    /// The same with the node's address in the environment. Without this it is empty, which the agent takes as none.
    pub fn with_node_ip(mut self, address: IpAddr) -> Self {
        self.environment.push(("NODE_IP".to_owned(), address.to_string()));
        self
    }

    /// The same with another program, such as `kubectl exec` runs in it.
    pub fn running<const N: usize>(mut self, words: [&str; N]) -> Self {
        self.command = words.map(str::to_owned).to_vec();
        self
    }
}
