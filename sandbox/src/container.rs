//! A program, or code that a test calls, with exactly the privileges that a DaemonSet gives it. The shipped manifest is read,
//! and the container is set up as a kubelet and a container runtime would.
//!
//! ```text
//!   manifests/*.yaml ────────▶ Container ──┬─ root      a file system of its own: the image's files, the volumes, no more
//!                Image (which programs) ────┤─ privileges capabilities, bounding set included; no_new_privs
//!                                           └─ seccomp   the calls that RuntimeDefault refuses
//! ```
//!
//! Not emulated: cgroups (resources), SELinux, AppArmor.

mod changes;
mod image;
mod manifest;
mod privileges;
mod root;
mod seccomp;
mod spawn;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::Command;

use crate::error::{Error, ErrorContext, Result};
pub use image::Image;
use manifest::ContainerChoice;
use privileges::Privileges;
use root::Root;
use seccomp::Filter;
pub use spawn::spawn_first;

/// The DaemonSet of the node agent, as shipped.
const NODE_AGENT: &str = include_str!("../../manifests/base/daemonset.yaml");

/// The DaemonSet that uninstalls from each node, as shipped.
const UNINSTALL: &str = include_str!("../../manifests/uninstall/uninstall.yaml");

/// The patch with which the agent replaces OKE's own CNI, as shipped.
const TAKEOVER: &str = include_str!("../../manifests/overlays/oke-vcn-native/takeover.yaml");

/// The part of a manifest that limits what a container can do.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    command: Vec<String>,
    environment: Vec<(String, String)>,
    capabilities: Vec<String>,
    volumes: Vec<Volume>,
    /// ConfigMaps that need not be there: by name, where they are mounted.
    config_maps: BTreeMap<String, PathBuf>,
    /// Where it finds its service account's token.
    service_account: Option<PathBuf>,
    read_only_root: bool,
    seccomp: bool,
}

/// A directory that the container sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Where it is on the node.
    pub host: PathBuf,
    /// Where the container sees it.
    pub mounted: PathBuf,
    /// Whether the container may only read it.
    pub read_only: bool,
    /// Whether the kubelet makes it where it is missing.
    create: bool,
}

/// Everything that a process does to itself between fork and exec, or a thread, to be in a container.
#[derive(Debug)]
pub(crate) struct Confinement {
    root: Root,
    privileges: Privileges,
    filter: Option<Filter>,
}

impl Container {
    /// The node agent's container, of the shipped manifest.
    pub fn node_agent() -> Result<Self> {
        Self::of_daemon_set(NODE_AGENT, &[])
    }

    /// The same with the shipped patch for nodes that have OKE's own CNI. One of its volumes is in /dev/shm, which
    /// is the machine's also on nodes of the sandbox: see [`Self::with_volume_at`].
    pub fn node_agent_taking_over() -> Result<Self> {
        Self::of_daemon_set(NODE_AGENT, &[TAKEOVER])
    }

    /// The container that uninstalls from a node, of the shipped manifest.
    pub fn uninstaller() -> Result<Self> {
        Self::of(UNINSTALL, &[], ContainerChoice::Init)
    }

    /// The container that stays on a node after that.
    pub fn after_uninstaller() -> Result<Self> {
        Self::of(UNINSTALL, &[], ContainerChoice::Last)
    }

    /// The only container of the only DaemonSet in a manifest, with patches of it.
    pub fn of_daemon_set(manifest: &str, patches: &[&str]) -> Result<Self> {
        Self::of(manifest, patches, ContainerChoice::Only)
    }

    fn of(manifest: &str, patches: &[&str], which: ContainerChoice) -> Result<Self> {
        let read = manifest::read(manifest, patches, which);
        read.map_err(|why| Error::Invalid(format!("the DaemonSet cannot be emulated: {why}")))
    }

    /// The names of the capabilities it has, without `CAP_`.
    pub fn capabilities(&self) -> &[String] {
        &self.capabilities
    }

    /// The node's directories that it sees.
    pub fn volumes(&self) -> &[Volume] {
        &self.volumes
    }

    /// The container's command, ready to be started on the machine that this thread sees.
    pub fn command(&self, image: &Image) -> Result<Command> {
        let confinement = self.confine(image)?;
        let mut command = self.program();
        #[expect(unsafe_code, reason = "pre_exec runs between fork and exec")]
        // SAFETY: `apply` makes system calls only; it neither allocates nor takes a lock.
        unsafe {
            command.pre_exec(move || confinement.apply());
        }
        Ok(command)
    }

    /// Calls code in it, on a thread that ends with it, on the machine that the calling thread sees: a container's file
    /// system, capabilities and filter are each thread's own. What it starts is in the container, too. Unlike a program,
    /// it is not a first process, and has the environment of the process that it is part of ([`Self::environment`]).
    pub fn run<T: Send>(&self, image: &Image, work: impl FnOnce() -> T + Send) -> Result<T> {
        let confinement = self.confine(image)?;
        std::thread::scope(|scope| {
            let contained = || confinement.apply().map(|()| work());
            let thread = std::thread::Builder::new().name("container".to_owned()).spawn_scoped(scope, contained);
            let done = thread.during(|| "start a thread")?.join();
            done.unwrap_or_else(|panic| resume_unwind(panic)).during(|| "enter a container")
        })
    }

    /// What its program finds in the environment.
    pub fn environment(&self) -> &[(String, String)] {
        &self.environment
    }

    /// Its program, with the manifest's environment only.
    pub(crate) fn program(&self) -> Command {
        let mut words = self.command.iter();
        let mut command = Command::new(words.next().map_or("", String::as_str));
        command.args(words).env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Does the kubelet's part (directories of the host that are missing) and prepares the rest. To be called where the
    /// node's files are seen.
    pub(crate) fn confine(&self, image: &Image) -> Result<Confinement> {
        for volume in &self.volumes {
            volume.prepare().during(|| format!("mount {} into a container", volume.host.display()))?;
        }
        let mut root = Root::new(self.read_only_root);
        for (inside, file) in &image.files {
            root.file(file, inside)?;
        }
        if image.is_dynamic().during(|| "look at the image's programs")? {
            root.libraries();
        }
        for volume in &self.volumes {
            root.volume(volume)?;
        }
        let privileges = Privileges::of(&self.capabilities)?;
        let filter = self.seccomp.then(Filter::runtime_default);
        Ok(Confinement { root, privileges, filter })
    }
}

impl Volume {
    fn prepare(&self) -> io::Result<()> {
        match fs::metadata(&self.host) {
            Ok(found) if found.is_dir() => Ok(()),
            Ok(_) => Err(io::ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.create => {
                // As the kubelet does, whatever the umask.
                fs::DirBuilder::new().recursive(true).mode(0o755).create(&self.host)?;
                fs::set_permissions(&self.host, fs::Permissions::from_mode(0o755))
            }
            Err(error) => Err(error),
        }
    }
}

impl Confinement {
    /// Moves the calling thread into the container: between fork and exec the only one, so the whole process. Only system
    /// calls, so that it is safe there; what fails half-way leaves a thread that must end.
    pub(crate) fn apply(&self) -> io::Result<()> {
        self.root.enter()?;
        self.privileges.drop_others()?;
        self.filter.as_ref().map_or(Ok(()), Filter::install)
    }
}
