//! A node's directories, and the command run on them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sandbox::{Container, Image};
use tempfile::TempDir;

pub(crate) const PLUGIN: &str = r#"#!/bin/sh
echo '{"cniVersion":"1.1.0","supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]}'
"#;
pub(crate) const PORTMAP: &str = r#"#!/bin/sh
echo '{"cniVersion":"1.0.0","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0"]}'
"#;

pub(crate) const STRACE: &str = "/usr/bin/strace";

/// The command, in its container.
const PROGRAM: &str = "/usr/local/bin/oke-cni-installer";

/// The volumes of the agent's manifest, and where below a node's directory each is.
const VOLUMES: [(&str, &str); 5] = [
    ("/opt/cni/bin", "bin"),
    ("/etc/cni/net.d", "net.d"),
    ("/var/lib/vcn-native", "lib"),
    ("/var/lib/cni", "cache"),
    ("/dev/shm/oci-cni", "shm"),
];

/// A node's directories. Dropped, they are gone.
pub(crate) struct Node {
    directory: TempDir,
}

/// Everything under a directory: contents, mode, inode, modification time.
pub(crate) type Snapshot = BTreeMap<PathBuf, (Vec<u8>, u32, u64, (i64, i64))>;

impl Node {
    /// A node whose image brings our plugin.
    pub(crate) fn new() -> Self {
        let node = Self { directory: tempfile::tempdir().unwrap() };
        for name in ["source", "bin", "net.d", "cache/results"] {
            fs::create_dir_all(node.path(name)).unwrap();
        }
        node.executable("source/vcn-native", PLUGIN);
        node
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn executable(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The command under what the node agent's manifest gives the agent, which the installer is part of.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.contained([PROGRAM], |container, image| (container, image));
        self.tell(&mut command, arguments);
        command
    }

    /// The same under strace, which writes to a file.
    pub(crate) fn traced_command(&self, strace: &[String], log: &Path, arguments: &[&str]) -> Command {
        let directory = log.parent().unwrap();
        let mut command = self.contained([STRACE], |container, image| {
            (container.with_volume(directory, directory), image.file(STRACE, STRACE))
        });
        command.args(["--quiet=all", "--output"]).arg(log).args(strace).arg(PROGRAM);
        self.tell(&mut command, arguments);
        command
    }

    fn contained(&self, words: [&str; 1], more: impl FnOnce(Container, Image) -> (Container, Image)) -> Command {
        let container =
            VOLUMES.iter().fold(Container::node_agent_taking_over().unwrap(), |container, (host, below)| {
                container.with_volume_moved(host.as_ref(), &self.path(below))
            });
        let image = Image::default()
            .file(PROGRAM, env!("CARGO_BIN_EXE_oke-cni-installer"))
            // The plugins of these tests are scripts.
            .file("/bin/sh", "/bin/sh");
        let sources = ["source", "newer"].map(|name| self.path(name)).into_iter().filter(|path| path.exists());
        let image = sources.fold(image, |image, path| image.file(path.clone(), path));
        let (container, image) = more(container, image);
        container.running(words).command(&image).unwrap()
    }

    /// The command as a person starts it on a host.
    pub(crate) fn plain_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oke-cni-installer"));
        self.tell(&mut command, arguments);
        command
    }

    fn tell(&self, command: &mut Command, arguments: &[&str]) {
        command.env_clear().env("CNI_BIN_DIR", self.path("bin")).env("CNI_CONF_DIR", self.path("net.d"));
        command.env("CNI_SOURCE_DIR", self.path("source")).env("CNI_CACHE_DIR", self.path("cache"));
        command.env("OKE_STATE_DIR", self.path("shm"));
        command.env("DATA_DIR", self.path("lib")).args(arguments);
    }

    /// Runs it as a person does on the host.
    pub(crate) fn run_plainly(&self, arguments: &[&str]) -> (i32, String) {
        told(&self.plain_command(arguments).output().unwrap())
    }

    /// Runs it; the exit status and what it printed.
    pub(crate) fn run(&self, arguments: &[&str]) -> (i32, String) {
        told(&self.command(arguments).output().unwrap())
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::new();
        for name in ["bin", "net.d"] {
            for entry in fs::read_dir(self.path(name)).into_iter().flatten() {
                let path = entry.unwrap().path();
                let metadata = fs::metadata(&path).unwrap();
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

    pub(crate) fn conflist(&self) -> PathBuf {
        self.path("net.d/05-vcn-native.conflist")
    }
}

pub(crate) fn told(output: &Output) -> (i32, String) {
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap(), text)
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}
