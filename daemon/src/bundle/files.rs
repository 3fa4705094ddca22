//! What is on disk: our state, CNI configurations, and of programs what they are, not what is in them.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::archive::{Archive, LONGEST};
use super::document::{LONGEST_DOCUMENT, is_configuration, too_long};
use crate::settings::Settings;

/// How deep our own directories are.
const DEPTH: u32 = 2;

pub(super) fn collect<W: io::Write>(settings: &Settings, archive: &mut Archive<W>) -> io::Result<()> {
    directory(&settings.state_dir, "state", DEPTH, archive)?;
    directory(&settings.data_dir, "data", DEPTH, archive)?;
    let installer = &settings.installer;
    for (path, name) in [(&installer.cni_conf_dir, "cni/net.d"), (&installer.cni_bin_dir, "cni/bin")] {
        let (listing, names) = listing(path);
        archive.result(&format!("{name}.txt"), listing)?;
        for file in names.iter().filter(|_| name == "cni/net.d").filter(|file| is_configuration(file)) {
            archive.result(&format!("{name}/{file}"), text(&path.join(file)))?;
        }
    }
    archive.text("versions.txt", &versions(settings))
}

/// Files of ours; sockets and locks have nothing to say.
fn directory<W: io::Write>(path: &Path, name: &str, depth: u32, archive: &mut Archive<W>) -> io::Result<()> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => {
            archive.missing(name, &error.to_string());
            return Ok(());
        }
    };
    let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    for entry in names {
        let (path, name) = (path.join(&entry), format!("{name}/{entry}"));
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() && depth > 0 => directory(&path, &name, depth - 1, archive)?,
            Ok(found) if found.is_file() && !entry.ends_with(".lock") => archive.result(&name, text(&path))?,
            Ok(_) => {}
            Err(error) => archive.missing(&name, &error.to_string()),
        }
    }
    Ok(())
}

/// A line for each file: SHA-256, size, mode, owner, when it was changed, name. And the names.
fn listing(path: &Path) -> (Result<String, String>, Vec<String>) {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => return (Err(error.to_string()), Vec::new()),
    };
    let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    let mut text = format!("{}: sha256, size, mode, owner, changed (seconds since 1970), name\n", path.display());
    for name in &names {
        let file = path.join(name);
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
    (Ok(text), names)
}

fn digest(path: &Path) -> String {
    // Piece by piece: some plugins are larger than the memory of the agent's container.
    let mut hasher = Sha256::new();
    match File::open(path).and_then(|mut file| io::copy(&mut file, &mut hasher)) {
        Ok(_) => hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect(),
        Err(error) => error.to_string(),
    }
}

/// A file's text, the end of it if it is long: what was written last is what matters. A long document is left out: where a
/// part of one begins, nobody knows what it is the value of.
fn text(path: &Path) -> Result<String, String> {
    let read = || -> io::Result<String> {
        // Whatever somebody planted there is neither followed nor waited for.
        let flags = nix::fcntl::OFlag::O_NOFOLLOW | nix::fcntl::OFlag::O_NONBLOCK;
        let mut file = File::options().read(true).custom_flags(flags.bits()).open(path)?;
        let (length, longest) = (file.metadata()?.len(), LONGEST as u64);
        let is_document = path.file_name().and_then(|name| name.to_str()).is_some_and(is_configuration);
        if is_document && length > LONGEST_DOCUMENT as u64 {
            return Err(io::Error::other(too_long(usize::try_from(length).unwrap_or(usize::MAX))));
        }
        let cut = length > longest;
        if cut {
            io::Seek::seek(&mut file, io::SeekFrom::Start(length - longest))?;
        }
        let mut bytes = Vec::new();
        file.take(longest).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        if !cut {
            return Ok(text.into_owned());
        }
        let whole_lines = text.split_once('\n').map_or("", |(_, after)| after);
        Ok(format!("(all but the last {} bytes are cut)\n{whole_lines}", whole_lines.len()))
    };
    read().map_err(|error| error.to_string())
}

fn versions(settings: &Settings) -> String {
    let mut text = format!("oke-node-agent {}\n", env!("CARGO_PKG_VERSION"));
    for (what, path) in [
        ("kernel", "/proc/version"),
        ("boot id", "/proc/sys/kernel/random/boot_id"),
        ("uptime, idle (seconds)", "/proc/uptime"),
        ("load", "/proc/loadavg"),
        ("kernel command line", "/proc/cmdline"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_log_the_last_whole_lines_are_taken_and_of_a_long_document_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (log, document) = (directory.path().join("verbs.log"), directory.path().join("10-long.conflist"));
        let line = format!("{}\n", "x".repeat(99));
        fs::write(&log, line.repeat(LONGEST / 100 + 10)).unwrap();
        let taken = text(&log).unwrap();
        let (said, rest) = taken.split_once('\n').unwrap();
        assert_eq!(said, format!("(all but the last {} bytes are cut)", rest.len()));
        assert!(rest.lines().all(|it| it.len() == 99) && rest.len() + 100 > LONGEST, "{}", rest.len());
        fs::write(&document, "x".repeat(LONGEST_DOCUMENT + 1)).unwrap();
        assert!(text(&document).unwrap_err().contains("too long for a bundle"));
        fs::write(&document, "{}").unwrap();
        assert_eq!(text(&document).unwrap(), "{}");
    }
}
