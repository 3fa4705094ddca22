//! Programs that change VNICs or the network of pods, detected by their files. A row of the table names the program, its
//! sign, what it breaks and the remedy.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use ipam::read_named;

use super::Context;
use crate::facts::condition::{Condition, Reason};

/// systemd-networkd makes this file when it starts.
const NETWORKD: &str = "run/systemd/netif/state";
/// NetworkManager has a file here for each device. The kubelet makes the directory where it is missing, empty.
const NETWORK_MANAGER: &str = "run/NetworkManager/devices";

/// One way in which a program interferes.
struct Check {
    program: &'static str,
    active: Active,
    sign: Sign,
    reason: Reason,
    /// What the program does: the sentence goes on after its name.
    effect: &'static str,
    remedy: &'static str,
}

/// Whether the program runs, or will run after a boot.
enum Active {
    /// A path below the host's root exists; a directory is not empty.
    Running(&'static str),
    /// A systemd unit is enabled for a target.
    Enabled { unit: &'static str, target: &'static str },
}

/// What shows that the active program does harm.
enum Sign {
    /// That it is active.
    Active,
    /// One of its settings is on. Each is, unless a file turns it off; an empty value is the default, and a word that is neither
    /// changes nothing.
    Setting { roots: &'static [&'static str], file: &'static str, section: &'static str, keys: &'static [&'static str] },
    /// Its state file of a VNIC's link, named by the link's index, has one of some values.
    Link { directory: &'static str, section: &'static str, key: &'static str, values: &'static [&'static str] },
}

/// The words of systemd, NetworkManager and Python.
const TRUE: &[&str] = &["1", "yes", "y", "true", "t", "on"];
const FALSE: &[&str] = &["0", "no", "n", "false", "f", "off"];

const CHECKS: &[Check] = &[
    Check {
        program: "systemd-networkd",
        active: Active::Running(NETWORKD),
        sign: Sign::Setting {
            roots: &["usr/lib/systemd", "usr/local/lib/systemd", "run/systemd", "etc/systemd"],
            file: "networkd.conf",
            section: "Network",
            keys: &["ManageForeignRoutingPolicyRules", "ManageForeignRoutes"],
        },
        reason: Reason::NetworkManagerInterferes,
        effect: "deletes the routes and rules of pods when it restarts or a link changes, which breaks connections",
        remedy: "Set these keys to `no` in /etc/systemd/networkd.conf.d/ and restart it (docs/operator.md, Keep network managers away)",
    },
    Check {
        program: "systemd-networkd",
        active: Active::Running(NETWORKD),
        sign: Sign::Link {
            directory: "run/systemd/netif/links",
            section: "",
            key: "ADMIN_STATE",
            values: &["configured", "configuring"],
        },
        reason: Reason::NetworkManagerInterferes,
        effect: "gives the link of a VNIC its own addresses and default route",
        remedy: "Set `Unmanaged=yes` for the link in /etc/systemd/network/ and run `networkctl reload` (docs/operator.md, \
                 Keep network managers away)",
    },
    Check {
        program: "NetworkManager",
        active: Active::Running(NETWORK_MANAGER),
        sign: Sign::Link { directory: NETWORK_MANAGER, section: "device", key: "managed", values: TRUE },
        reason: Reason::NetworkManagerInterferes,
        effect: "deletes our addresses and routes on the link of a VNIC",
        remedy: "Add the link to unmanaged-devices in /etc/NetworkManager/conf.d/ and run `nmcli general reload` \
                 (docs/operator.md, Keep network managers away)",
    },
    Check {
        program: "nm-cloud-setup",
        active: Active::Enabled { unit: "nm-cloud-setup.timer", target: "timers.target" },
        sign: Sign::Active,
        reason: Reason::NetworkManagerInterferes,
        effect: "writes routing rules for every VNIC",
        remedy: "Run `systemctl disable --now nm-cloud-setup.timer nm-cloud-setup.service`",
    },
    Check {
        program: "ocid",
        active: Active::Enabled { unit: "ocid.service", target: "multi-user.target" },
        sign: Sign::Setting { roots: &["etc"], file: "oci-utils.conf", section: "vnic", keys: &["enabled"] },
        reason: Reason::ConflictingConfiguration,
        effect: "configures every VNIC once a minute",
        remedy: "Run `systemctl disable --now ocid` or set this key to `false` in /etc/oci-utils.conf.d/, then run \
                 `oci-network-config unconfigure`",
    },
];

/// A condition for each sign of interference.
pub(super) fn run(context: &Context<'_>) -> Vec<Condition> {
    let root = &context.node.settings.host_root;
    CHECKS.iter().filter(|check| check.active.is_so(root)).flat_map(|check| check.conditions(root, context)).collect()
}

impl Check {
    fn conditions(&self, root: &Path, context: &Context<'_>) -> Vec<Condition> {
        match &self.sign {
            Sign::Active => vec![self.condition(self.program, "it is enabled")],
            Sign::Setting { roots, file, section, keys } => {
                let texts = merged(root, roots, file);
                let counts = |value: &&str| value.is_empty() || is_one_of(value, TRUE) || is_one_of(value, FALSE);
                let is_on = |key: &str| {
                    let mut all = texts.iter().flat_map(|text| assigned(text, section, key));
                    all.rfind(counts).is_none_or(|value| !is_one_of(value, FALSE))
                };
                let on: Vec<&str> = keys.iter().copied().filter(|key| is_on(key)).collect();
                let evidence = format!("[{section}] {} is on", on.join(" and "));
                if on.is_empty() { Vec::new() } else { vec![self.condition(self.program, &evidence)] }
            }
            Sign::Link { directory, section, key, values } => {
                let shows = |index: u32| {
                    let text = text(&root.join(directory).join(index.to_string())).unwrap_or_default();
                    assigned(&text, section, key).last().is_some_and(|value| is_one_of(value, values))
                };
                let vnics = context.vnics().iter().filter(|vnic| context.index_of(vnic).is_some_and(shows));
                let condition = |vnic: &datapath::host::HostVnic| {
                    let link = vnic.placement.link();
                    self.condition(&format!("{}, {link}", self.program), &format!("{link} of {}", vnic.vnic.id))
                };
                vnics.map(condition).collect()
            }
        }
    }

    fn condition(&self, subject: &str, evidence: &str) -> Condition {
        let Self { program, effect, remedy, .. } = self;
        Condition::degraded(self.reason, format!("{program} {effect} ({evidence}). {remedy}.")).about(subject)
    }
}

impl Active {
    fn is_so(&self, root: &Path) -> bool {
        match self {
            Self::Running(path) => {
                let path = root.join(path);
                fs::read_dir(&path).map_or_else(|_| path.exists(), |mut entries| entries.next().is_some())
            }
            // `systemctl enable` and `mask` make links, which need not lead anywhere from here.
            Self::Enabled { unit, target } => {
                let links = root.join("etc/systemd/system");
                let is_enabled = links.join(format!("{target}.wants")).join(unit).symlink_metadata().is_ok();
                let masked = fs::read_link(links.join(unit)).is_ok_and(|to| to == Path::new("/dev/null"));
                is_enabled && !masked
            }
        }
    }
}

/// The values of a key in a section of `[Section]`, `Key=value` text. The section before the first head is "".
fn assigned<'a>(text: &'a str, section: &str, key: &str) -> Vec<&'a str> {
    let mut within = section.is_empty();
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            within = name == section;
        } else if within
            && let Some((name, value)) = line.split_once('=')
            && name.trim() == key
        {
            found.push(value.trim());
        }
    }
    found
}

/// The texts of a main file and its drop-ins, the last one counting: drop-ins are ordered by name, and one in a later root
/// replaces its namesake.
fn merged(root: &Path, roots: &[&str], file: &str) -> Vec<String> {
    let mut drop_ins: BTreeMap<OsString, PathBuf> = BTreeMap::new();
    for below in roots {
        let entries = fs::read_dir(root.join(below).join(format!("{file}.d"))).into_iter().flatten().flatten();
        let files = entries.map(|entry| (entry.file_name(), entry.path()));
        drop_ins.extend(files.filter(|(_, path)| path.extension().is_some_and(|end| end == "conf")));
    }
    let main = roots.iter().rev().find_map(|below| text(&root.join(below).join(file)));
    main.into_iter().chain(drop_ins.values().filter_map(|path| text(path))).collect()
}

fn is_one_of(value: &str, words: &[&str]) -> bool {
    words.iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// At most 8 MiB of a regular file.
fn text(path: &Path) -> Option<String> {
    read_named(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn values_in_section_are_found_in_order() {
        let text = "KEY=top\n[Other]\nKey=no\n[Network]\n# Key=comment\nKey = one\nKey=two\n[Other]\nKey=no\n";
        let found = [("Network", "Key"), ("Network", "Missing"), ("", "KEY")].map(|(at, key)| assigned(text, at, key));
        assert_eq!(found, [vec!["one", "two"], vec![], vec!["top"]]);
    }

    #[test]
    fn drop_in_in_later_root_replaces_its_namesake() {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("lib/x.conf", "lib"),
            ("lib/x.conf.d/50-a.conf", "a of lib"),
            ("lib/x.conf.d/10-b.conf", "b of lib"),
            ("etc/x.conf.d/50-a.conf", "a of etc"),
            ("etc/x.conf.d/99-c.txt", "no drop-in"),
        ] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let huge = fs::File::create(root.path().join("etc/x.conf.d/99-huge.conf")).unwrap();
        huge.set_len(ipam::MAX_STATE_BYTES + 1).unwrap();
        assert_eq!(merged(root.path(), &["lib", "etc"], "x.conf"), ["lib", "b of lib", "a of etc"]);
    }

    #[test]
    fn unit_is_enabled_when_target_wants_it_and_not_masked() {
        let root = tempfile::tempdir().unwrap();
        let links = root.path().join("etc/systemd/system");
        let enabled = || Active::Enabled { unit: "ocid.service", target: "multi-user.target" }.is_so(root.path());
        assert!(!enabled());
        fs::create_dir_all(links.join("multi-user.target.wants")).unwrap();
        symlink("/usr/lib/systemd/system/ocid.service", links.join("multi-user.target.wants/ocid.service")).unwrap();
        assert!(enabled());
        symlink("/dev/null", links.join("ocid.service")).unwrap();
        assert!(!enabled());
    }
}
