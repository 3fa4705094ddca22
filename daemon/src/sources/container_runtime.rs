//! Which container runtime started this agent, as far as its container shows that: runtimes differ in what they do about a CNI
//! configuration that they cannot use. Needs no permission and no socket of the runtime.

use std::fs;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContainerRuntime {
    /// Skips a configuration that it cannot read, or that names a plugin without a binary.
    CriO,
    /// Any other, or unknown. containerd rejects all configurations because of one that it cannot read, and takes the first one
    /// whatever it names.
    Unknown,
}

impl ContainerRuntime {
    /// That of this container.
    pub(crate) fn current() -> Self {
        fs::read_to_string("/proc/self/mountinfo").map_or(Self::Unknown, |mounts| Self::of(&mounts))
    }

    /// By the mounts of a container, from /proc/PID/mountinfo: only CRI-O mounts its files (resolv.conf, hostname) from the store
    /// of github.com/containers/storage.
    fn of(mounts: &str) -> Self {
        // The fourth field is the mounted part of the file system; later ones hold options of the file system below.
        let roots = mounts.lines().filter_map(|mount| mount.split(' ').nth(3));
        match roots.into_iter().any(|root| root.contains("/containers/storage/")) {
            true => Self::CriO,
            false => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cri_o_is_recognized_by_the_files_it_mounts() {
        let container = |root: &str, options: &str| {
            format!(
                "1510 1402 0:71 / / rw,relatime - overlay overlay rw,{options}\n\
                 1531 1510 0:25 {root}/resolv.conf /etc/resolv.conf rw,nosuid - tmpfs tmpfs rw,size=802964k\n"
            )
        };
        let store = "/containers/storage/overlay-containers/0f7c/userdata";
        for (text, expected) in [
            (container(store, "lowerdir=l/A:l/B"), ContainerRuntime::CriO),
            (container(&format!("/var/lib{store}"), "lowerdir=l/A"), ContainerRuntime::CriO),
            (
                container(
                    "/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/0f7c",
                    "upperdir=/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/7/fs",
                ),
                ContainerRuntime::Unknown,
            ),
            // A directory on the root of a machine that is a container itself.
            (container("/tmp/node", "upperdir=/var/lib/containers/storage/overlay/1/diff"), ContainerRuntime::Unknown),
            (String::new(), ContainerRuntime::Unknown),
        ] {
            assert_eq!(ContainerRuntime::of(&text), expected, "{text}");
        }
    }
}
