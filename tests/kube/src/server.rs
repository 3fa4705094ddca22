//! One API server: started, which issues identities and clients, stopped and started again.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use kube::Client;
use kube::config::Kubeconfig;
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::account::{Bound, ServiceAccount};
use crate::api_faults::{self, Throttle};
use crate::apply;
use crate::arguments::{Listen, file};
use crate::assets::Assets;
use crate::authority::Authority;
use crate::etcd;
use crate::identity::Identity;
use crate::programs::{Programs, Site};
use anyhow::{Context, Result, anyhow};

/// How often other ports are tried when one is in use.
const ATTEMPTS: u32 = 3;

/// A running etcd and kube-apiserver. When it goes, they and their folder go.
#[derive(Debug)]
pub struct ApiServer {
    // In this order: the programs end before their folder goes.
    programs: Mutex<Programs>,
    folder: TempDir,
    authority: Authority,
    admin: Identity,
    listen: Listen,
    throttle: Mutex<Option<Throttle>>,
}

impl ApiServer {
    /// Starts one on 127.0.0.1 of the caller's network namespace, and waits until it is ready.
    pub fn start() -> Result<Self> {
        Self::start_at(&Assets::find()?, IpAddr::from(Ipv4Addr::LOCALHOST), &default_parent())
    }

    /// The same on another address of the namespace, with its folder in `parent`.
    pub fn start_at(assets: &Assets, address: IpAddr, parent: &Path) -> Result<Self> {
        let mut attempt = 1;
        loop {
            match Self::start_once(assets, address, parent) {
                Err(error) if attempt < ATTEMPTS && error.to_string().contains("address already in use") => {}
                other => return other,
            }
            attempt += 1;
        }
    }

    /// The one of this test binary, started at the first call. Tests that use it keep out of each other's way by
    /// names, and never stop it.
    pub fn shared() -> Result<&'static Self> {
        static SHARED: OnceLock<Result<ApiServer>> = OnceLock::new();
        match SHARED.get_or_init(Self::start) {
            Ok(server) => Ok(server),
            Err(error) => Err(anyhow!("{error:#}")),
        }
    }

    fn start_once(assets: &Assets, address: IpAddr, parent: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("oke-kube-harness.").tempdir_in(parent)?;
        let listen = Listen::free(address)?;
        let authority = Authority::new()?;
        write_keys(folder.path(), &authority, address)?;
        let admin = Identity::of_certificate(authority.client("admin", Some("system:masters"))?);
        let site = Site {
            assets: assets.clone(),
            folder: folder.path().to_owned(),
            listen,
            config: config(admin.kubeconfig(&url(&listen), authority.certificate())?)?,
        };
        let programs = Mutex::new(Programs::start(site)?);
        Ok(Self { programs, folder, authority, admin, listen, throttle: Mutex::default() })
    }

    /// Where it listens: `https://127.0.0.1:…`.
    #[must_use]
    pub fn url(&self) -> String {
        url(&self.listen)
    }

    /// The host and the port that a kubelet gives to pods as `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT`.
    #[must_use]
    pub fn service(&self) -> (String, String) {
        (self.listen.api.ip().to_string(), self.listen.api.port().to_string())
    }

    /// The certificate of the cluster's authority, as PEM.
    #[must_use]
    pub fn authority(&self) -> &str {
        self.authority.certificate()
    }

    /// The folder with keys, data and logs (`etcd.log`, `kube-apiserver.log`).
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Who may do everything: a member of `system:masters`.
    #[must_use]
    pub fn admin(&self) -> &Identity {
        &self.admin
    }

    /// The kubelet of a node: `system:node:NAME` of `system:nodes`. The Node object is another matter.
    pub fn node(&self, name: &str) -> Result<Identity> {
        self.user(&format!("system:node:{name}"), Some("system:nodes"))
    }

    /// Any user, a member of one group at most.
    pub fn user(&self, name: &str, group: Option<&str>) -> Result<Identity> {
        self.authority.client(name, group).map(Identity::of_certificate)
    }

    /// Makes a service account, and its namespace where that is missing.
    pub async fn create_account(&self, account: &ServiceAccount) -> Result<()> {
        account.create(&self.client(&self.admin)?).await
    }

    /// A service account with a token, which a kubelet would mount into a pod.
    pub async fn token(&self, account: &ServiceAccount, bound: &Bound) -> Result<Identity> {
        account.token(&self.client(&self.admin)?, bound).await
    }

    /// A client, for the tokio runtime that calls this.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn client(&self, identity: &Identity) -> Result<Client> {
        let config = config(self.kubeconfig(identity)?)?;
        Client::try_from(config).with_context(|| format!("make a client of {}", self.url()))
    }

    /// A kubeconfig file for an identity.
    pub fn kubeconfig(&self, identity: &Identity) -> Result<Kubeconfig> {
        identity.kubeconfig(&self.url(), self.authority())
    }

    /// Writes a kubeconfig, for programs.
    pub fn write_kubeconfig(&self, identity: &Identity, path: &Path) -> Result<()> {
        let text = identity.document(&self.url(), self.authority()).to_string();
        fs::write(path, text).with_context(|| format!("write {}", path.display()))
    }

    /// Writes what a kubelet mounts at `/var/run/secrets/kubernetes.io/serviceaccount`: token, ca.crt, namespace.
    pub fn write_in_cluster(&self, identity: &Identity, namespace: &str, folder: &Path) -> Result<()> {
        identity.write_in_cluster(self.authority(), namespace, folder)
    }

    /// Applies every object of a file or folder, and waits until what it defines is served. Folders below are left out.
    pub async fn apply(&self, path: &Path) -> Result<()> {
        apply::apply(&self.client(&self.admin)?, path).await
    }

    /// The definition of OKE's NativePodNetwork, as far as it is known; on a cluster, OKE brings its own.
    #[must_use]
    pub fn native_pod_networks() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("crds/nativepodnetworks.yaml")
    }

    /// Applies one object, its status too where its kind keeps that apart.
    pub async fn apply_object(&self, object: Value) -> Result<()> {
        apply::apply_object(&self.client(&self.admin)?, object).await
    }

    /// What etcd holds of an object, byte for byte, by its key: `/registry/GROUP/PLURAL/[NAMESPACE/]NAME` for custom
    /// resources.
    pub async fn stored(&self, key: &str) -> Result<Option<Vec<u8>>> {
        etcd::value(self.listen.etcd, key).await
    }

    fn programs(&self) -> MutexGuard<'_, Programs> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills kube-apiserver: the address does not answer. etcd stays.
    pub fn stop(&self) -> Result<()> {
        self.programs().stop_api_server();
        Ok(())
    }

    /// Has kube-apiserver stand still: connections are accepted and stay open without an answer.
    pub fn freeze(&self) -> Result<()> {
        self.programs().signal_api_server(Signal::SIGSTOP)
    }

    /// Continues the server after a freeze.
    pub fn thaw(&self) -> Result<()> {
        self.programs().signal_api_server(Signal::SIGCONT)
    }

    /// Starts kube-apiserver again, at the same address with the same keys and data, and waits until it is ready.
    pub fn start_again(&self) -> Result<()> {
        self.programs().start_api_server()
    }

    /// [`ApiServer::stop`], then [`ApiServer::start_again`].
    pub fn restart(&self) -> Result<()> {
        self.stop()?;
        self.start_again()
    }

    /// Restarts it with all history gone: a watch that goes on from what was read before answers 410.
    pub async fn expire(&self) -> Result<()> {
        api_faults::move_on(&self.client(&self.admin)?).await?;
        etcd::compact(self.listen.etcd).await?;
        // Its watch cache remembers what etcd has forgotten.
        self.restart()
    }

    /// Has every request of a user (`system:serviceaccount:NAMESPACE:NAME` for an account) refused with 429, until
    /// [`ApiServer::unthrottle`] or the end of the calling runtime. One user at a time.
    pub async fn throttle(&self, user: &str) -> Result<()> {
        let occupier = config(self.kubeconfig(&self.user(api_faults::OCCUPIER, None)?)?)?;
        let throttle = Throttle::of(user, &self.client(&self.admin)?, occupier).await?;
        *self.throttle.lock().unwrap_or_else(PoisonError::into_inner) = Some(throttle);
        Ok(())
    }

    /// Removes the throttle of requests.
    pub async fn unthrottle(&self) -> Result<()> {
        let throttle = self.throttle.lock().unwrap_or_else(PoisonError::into_inner).take();
        match throttle {
            Some(throttle) => throttle.end(&self.client(&self.admin)?).await,
            None => Ok(()),
        }
    }
}

/// In the fresh namespaces of tests/runner /run is memory, and goes with them.
fn default_parent() -> PathBuf {
    match std::env::var_os("OKE_TEST_ISOLATED") {
        Some(_) => PathBuf::from("/run"),
        None => std::env::temp_dir(),
    }
}

fn url(listen: &Listen) -> String {
    format!("https://{}", listen.api)
}

fn write_keys(folder: &Path, authority: &Authority, address: IpAddr) -> Result<()> {
    let server = authority.server(address)?;
    let (private, public) = authority.account_keys();
    for (name, content) in [
        (file::CA, authority.certificate()),
        (file::SERVER_CERTIFICATE, &server.certificate),
        (file::SERVER_KEY, &server.key),
        (file::ACCOUNTS_PRIVATE, &private),
        (file::ACCOUNTS_PUBLIC, &public),
    ] {
        fs::write(folder.join(name), content).with_context(|| format!("write {name}"))?;
    }
    Ok(())
}

/// A client sees what the server says: it repeats nothing by itself.
fn config(kubeconfig: Kubeconfig) -> Result<kube::Config> {
    let invalid = |error| anyhow!("the kubeconfig is of no use: {error}");
    let mut config = kube::Config::try_from(kubeconfig).map_err(invalid)?;
    config.default_retry = false;
    Ok(config)
}
