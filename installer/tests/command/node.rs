//! A node's directories, and the command run on them in the containers of our manifests. house-lint finds a test that starts
//! it elsewhere.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use installer::{Report, Settings, Signals};
use sandbox::{Container, Image};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const PLUGIN: &str = r#"#!/bin/sh
# gives pods VCN addresses of the node's secondary VNICs
echo '{"cniVersion":"1.1.0","supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]}'
"#;
/// The arguments that install everything.
pub(crate) const INSTALL: [&str; 3] = ["--signal-node-label", "true", "--cni-usable"];

pub(crate) const PORTMAP: &str = r#"#!/bin/sh
echo '{"cniVersion":"1.0.0","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0"]}'
"#;

/// Another pod network's configuration.
pub(crate) const FLANNEL: &str = r#"{ "name":"cbr0", "cniVersion":"1.0.0", "plugins":[ {"type":"flannel"} ] }"#;

/// Another program's file with our configuration's name.
pub(crate) const FOREIGN: &str = r#"{ "name":"foreign", "plugins":[{"type":"bridge"}] }"#;

pub(crate) const CONFLIST: &str = "net.d/05-vcn-native.conflist";

const STRACE: &str = "/usr/bin/strace";
const MISSING: &str =
    "strace is missing, and without it nothing can be made to fail: run 'make setup' (see packages.txt)";

const SCRIPT: &str = "/usr/bin/script";

/// The command, in its containers.
pub(crate) const PROGRAM: &str = "/usr/local/bin/oke-cni-installer";

/// Volumes of the manifests, and their directories below a node's. All others are below `host`; kernel settings are the
/// namespace's.
const VOLUMES: [(&str, &str); 6] = [
    ("/opt/cni/bin", "bin"),
    ("/etc/cni/net.d", "net.d"),
    ("/run/vcn-native", "run"),
    ("/var/lib/vcn-native", "lib"),
    ("/var/lib/cni", "cache"),
    ("/dev/shm/oci-cni", "shm"),
];

const KERNEL: &str = "/proc/sys/net";

/// A node's directories, removed on drop.
pub(crate) struct Node {
    directory: TempDir,
}

/// Everything under a directory: contents, mode, inode, modification time.
pub(crate) type Snapshot = BTreeMap<PathBuf, (Vec<u8>, u32, u64, (i64, i64))>;

impl Node {
    /// A node whose image contains our plugin.
    pub(crate) fn new() -> Self {
        let node = Self { directory: tempfile::tempdir().unwrap() };
        let kernel = ["host/sys/fs/cgroup", "host/sys/kernel/mm", "host/proc/sys/vm", "host/proc/sys/fs/inotify"];
        for name in ["source", "bin", "net.d", "cache/results", "host/usr", "host/etc"].into_iter().chain(kernel) {
            fs::create_dir_all(node.path(name)).unwrap();
        }
        node.executable("source/vcn-native", PLUGIN);
        node
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn executable(&self, name: &str, text: &str) {
        sandbox::write_program(&self.path(name), text.as_bytes()).unwrap();
    }

    /// The container of the node agent's manifest, with the patch for a takeover.
    pub(crate) fn agents(&self) -> Container {
        self.placed(Container::node_agent_taking_over().unwrap())
    }

    /// A container with its volumes in this node's directory.
    pub(crate) fn placed(&self, container: Container) -> Container {
        let hosts: Vec<PathBuf> = container.volumes().iter().map(|volume| volume.host.clone()).collect();
        hosts.iter().filter(|host| **host != Path::new(KERNEL)).fold(container, |container, host| {
            let named = VOLUMES.iter().find(|(named, _)| host == Path::new(named));
            let elsewhere = match named {
                Some((_, below)) => self.path(below),
                None => self.path("host").join(host.strip_prefix("/").unwrap()),
            };
            container.with_volume_at(host, &elsewhere)
        })
    }

    /// The image with the plugins of a release. The shell is for those, which are scripts.
    fn image(&self, release: &str) -> Image {
        Image::default()
            .file(PROGRAM, env!("CARGO_BIN_EXE_oke-cni-installer"))
            .file("/bin/sh", "/bin/sh")
            .file("/usr/libexec/vcn-native", self.path(release))
    }

    /// The command in the agent's container.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.command_of("source", arguments)
    }

    /// The same with another release's image.
    pub(crate) fn command_of(&self, release: &str, arguments: &[&str]) -> Command {
        let mut command = self.agents().running([PROGRAM]).command(&self.image(release)).unwrap();
        without_takeover(&mut command).args(arguments);
        command
    }

    /// A container's own command, with more arguments.
    pub(crate) fn command_in(&self, container: &Container, arguments: &[&str]) -> Command {
        let mut command = container.command(&self.image("source")).unwrap();
        without_takeover(&mut command).args(arguments);
        command
    }

    /// The command in a container under strace, which writes to a file.
    pub(crate) fn traced_command(
        &self,
        container: Container,
        strace: &[String],
        log: &Path,
        arguments: &[&str],
    ) -> Command {
        assert!(Path::new(STRACE).exists(), "{MISSING}");
        let directory = log.parent().unwrap();
        let container = container.with_volume(directory, directory).running([STRACE]);
        let mut command = container.command(&self.image("source").file(STRACE, STRACE)).unwrap();
        without_takeover(&mut command)
            .args(["--quiet=all", "--output"])
            .arg(log)
            .args(strace)
            .arg(PROGRAM)
            .args(arguments);
        command
    }

    /// Runs the command in the agent's container at a terminal; the exit status and the output.
    pub(crate) fn run_at_a_terminal(&self) -> (i32, String) {
        let container = self.agents().running([SCRIPT, "--quiet", "--return", "--command", PROGRAM, "/dev/null"]);
        let mut command = container.command(&self.image("source").file(SCRIPT, SCRIPT)).unwrap();
        printed(&without_takeover(&mut command).output().unwrap())
    }

    /// Uninstalls as root on a host without a cluster: no container, the same directories.
    pub(crate) fn uninstall_on_a_host(&self, more: &[&str]) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oke-cni-installer"));
        command.env_clear().env("CNI_BIN_DIR", self.path("bin")).env("CNI_CONF_DIR", self.path("net.d"));
        command.env("STATE_DIR", self.path("run")).env("DATA_DIR", self.path("lib"));
        printed(&command.arg("uninstall").args(more).output().unwrap())
    }

    /// One reconcile by the installer's code in the agent's container, as the agent calls it.
    pub(crate) fn reconcile(&self, settings: &Settings) -> Report {
        let look = || installer::reconcile(settings, &Signals::default(), true);
        self.agents().run(&self.image("source"), look).unwrap()
    }

    /// Runs the command in the agent's container; the exit status and the output.
    pub(crate) fn run(&self, arguments: &[&str]) -> (i32, String) {
        printed(&self.command(arguments).output().unwrap())
    }

    /// The same in another container.
    pub(crate) fn run_in(&self, container: &Container, arguments: &[&str]) -> (i32, String) {
        printed(&self.command_in(container, arguments).output().unwrap())
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::new();
        for name in ["bin", "net.d"] {
            for entry in fs::read_dir(self.path(name)).into_iter().flatten() {
                let path = entry.unwrap().path();
                let metadata = fs::metadata(&path).unwrap();
                if metadata.is_dir() {
                    continue;
                }
                let contents = fs::read(&path).unwrap();
                snapshot.insert(
                    path,
                    (contents, metadata.mode() & 0o7777, metadata.ino(), (metadata.mtime(), metadata.mtime_nsec())),
                );
            }
        }
        snapshot
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let name = |path: &PathBuf| path.strip_prefix(self.directory.path()).unwrap().display().to_string();
        self.snapshot().keys().map(name).collect()
    }

    pub(crate) fn entries(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(name)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub(crate) fn conflist(&self) -> PathBuf {
        self.path(CONFLIST)
    }

    /// A file of JSON.
    pub(crate) fn document(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path(name)).unwrap()).unwrap()
    }

    /// The plugins of our configuration, by type.
    pub(crate) fn kinds(&self) -> Vec<String> {
        let document = self.document(CONFLIST);
        let plugins = document["plugins"].as_array().unwrap();
        plugins.iter().map(|plugin| plugin["type"].as_str().unwrap().to_owned()).collect()
    }
}

/// Each test sets the takeover by itself.
fn without_takeover(command: &mut Command) -> &mut Command {
    command.env_remove("CNI_TAKEOVER")
}

pub(crate) fn printed(output: &Output) -> (i32, String) {
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap(), text)
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}
