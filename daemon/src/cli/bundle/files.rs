//! Files: our state files whole, CNI configurations without their values, programs by size and digest.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::archive::Archive;
use crate::settings::Settings;

/// Our files in the data directory, without `installer.json` and `before/`, which quote configurations of other programs.
const DATA: [&str; 10] = [
    vcn::ATTACHMENTS_COPY_FILE,
    vcn::NPN_COPY_FILE,
    vcn::VNICS_COPY_FILE,
    vcn::REPORTED_CONDITIONS_FILE,
    vcn::CONTROLLER_RULES_FILE,
    vcn::NODE_POLICY_FILE,
    vcn::NODE_POLICY_PROOFS_FILE,
    vcn::LINK_JOURNAL_FILE,
    "tables.json",
    "sysctls.json",
];

/// Our files in the state directory, and the folder with the records of attachments.
const STATE: [&str; 4] = ["pools.json", "allocations.json", "verbs.log", "verbs.log.1"];
const RECORDS: &str = "allocations";

/// A CNI configuration without its values.
#[derive(Serialize)]
struct Configuration {
    file: String,
    /// Why it cannot be read or parsed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    name: Value,
    cni_version: Value,
    plugins: Vec<Plugin>,
}

#[derive(Serialize)]
struct Plugin {
    r#type: Value,
    keys: Vec<String>,
}

pub(super) fn collect<W: io::Write>(settings: &Settings, archive: &mut Archive<W>) -> io::Result<()> {
    for name in STATE {
        state_file(&settings.state_dir.join(name), &format!("state/{name}"), archive)?;
    }
    let records = settings.state_dir.join(RECORDS);
    for name in names(&records).unwrap_or_default().iter().filter(|name| name.ends_with(".json")) {
        state_file(&records.join(name), &format!("state/{RECORDS}/{name}"), archive)?;
    }
    for name in DATA {
        state_file(&settings.data_dir.join(name), &format!("data/{name}"), archive)?;
    }
    let installer = &settings.installer;
    for (path, name) in [(&installer.cni_conf_dir, "cni/net.d"), (&installer.cni_bin_dir, "cni/bin")] {
        archive.result(&format!("{name}.txt"), listing(path).map_err(|error| error.to_string()))?;
    }
    archive.json("cni/configurations.json", Ok(configurations(&installer.cni_conf_dir)))?;
    archive.text("versions.txt", &versions(settings))
}

fn state_file<W: io::Write>(path: &Path, name: &str, archive: &mut Archive<W>) -> io::Result<()> {
    match text(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        read => archive.result(name, read.map_err(|error| error.to_string())),
    }
}

fn names(path: &Path) -> io::Result<Vec<String>> {
    let mut names: Vec<String> =
        fs::read_dir(path)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    Ok(names)
}

/// A line per file: SHA-256, size, mode, owner, modification time, name.
fn listing(path: &Path) -> io::Result<String> {
    let mut text = format!("{}: sha256, size, mode, owner, changed (seconds since 1970), name\n", path.display());
    for name in names(path)? {
        let file = path.join(&name);
        let _ = match fs::symlink_metadata(&file) {
            Ok(found) => {
                let digest = if found.is_file() { digest(&file) } else { "-".into() };
                let link = fs::read_link(&file).map(|to| format!(" -> {}", to.display())).unwrap_or_default();
                let (mode, owner) = (found.mode() & 0o7777, found.uid());
                writeln!(text, "{digest} {} {mode:o} {owner} {} {name}{link}", found.len(), found.mtime())
            }
            Err(error) => writeln!(text, "- - - - - {name}: {error}"),
        };
    }
    Ok(text)
}

fn digest(path: &Path) -> String {
    // Read in pieces: some plugins are larger than the memory of the agent's container.
    let mut hasher = Sha256::new();
    match File::open(path).and_then(|mut file| io::copy(&mut file, &mut hasher)) {
        Ok(_) => hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect(),
        Err(error) => error.to_string(),
    }
}

/// The files that a runtime reads as configurations.
fn configurations(path: &Path) -> Vec<Configuration> {
    let is_configuration = |name: &String| {
        let extension = Path::new(name).extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| ["conf", "conflist", "json"].contains(&extension))
    };
    names(path).unwrap_or_default().into_iter().filter(is_configuration).map(|name| configuration(path, name)).collect()
}

fn configuration(path: &Path, file: String) -> Configuration {
    let read = text(&path.join(&file)).map_err(|error| error.to_string());
    let parsed = read.and_then(|text| serde_json::from_str(&text).map_err(|error| format!("not JSON: {error}")));
    let (document, error) = match parsed {
        Ok(document) => (document, None),
        Err(error) => (Value::Null, Some(error)),
    };
    // A configuration of a single plugin has no list.
    let list = document.get("plugins").and_then(Value::as_array);
    let entries = list.map_or(std::slice::from_ref(&document), Vec::as_slice);
    let plugin = |entry: &Value| Plugin {
        r#type: short(entry, "type"),
        keys: entry.as_object().map(|members| members.keys().cloned().collect()).unwrap_or_default(),
    };
    Configuration {
        file,
        name: short(&document, "name"),
        cni_version: short(&document, "cniVersion"),
        plugins: entries.iter().filter(|entry| entry.is_object()).map(plugin).collect(),
        error,
    }
}

/// A member with a name or a version; other values are left out.
fn short(document: &Value, key: &str) -> Value {
    let text = document.get(key).and_then(Value::as_str).filter(|text| text.len() <= 100);
    text.map_or(Value::Null, Into::into)
}

/// A regular file of at most 8 MiB.
fn text(path: &Path) -> io::Result<String> {
    let text = String::from_utf8(ipam::read_state(path)?);
    Ok(text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

fn versions(settings: &Settings) -> String {
    let mut text = format!("oke-node-agent {}\n", env!("CARGO_PKG_VERSION"));
    for (what, path) in [
        ("kernel", "/proc/version"),
        ("boot id", "/proc/sys/kernel/random/boot_id"),
        ("uptime, idle (seconds)", "/proc/uptime"),
        ("load", "/proc/loadavg"),
    ] {
        let value = fs::read_to_string(path).unwrap_or_else(|error| error.to_string());
        let _ = writeln!(text, "{what}: {}", value.trim());
    }
    for root in [settings.host_root.as_path(), Path::new("/")] {
        if let Ok(release) = fs::read_to_string(root.join("etc/os-release")) {
            let _ = writeln!(text, "\n{}:\n{}", root.join("etc/os-release").display(), release.trim());
            break;
        }
    }
    text
}
