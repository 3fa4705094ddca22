//! Puts a link back as the journal has it: its values, then its addresses and routes. Reads no file but the kernel's.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use installer::{read_link_option, write_link_option};
use netlink::{Link, LinkChange, Socket, Sysctls};
use resident::logging::chain;
use tunables::Item;
use vcn::Mtu;

use super::boot_target::is_on;
use super::journal::{JournalStep, SavedLink, UnfinishedChange};

/// How long the kernel may take until all is as before.
const SETTLE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(100);
const DEPTH_MAX: u32 = 4;

/// A link and those that stand on it, as they are.
///
/// # Errors
/// When the kernel does not answer.
pub(super) fn save(link: &Link, sysctl_root: &Path) -> Result<Vec<SavedLink>, netlink::Error> {
    let mut kernel = Socket::open()?;
    let links = kernel.links()?;
    let above = links.iter().filter(|it| it.index != link.index && is_on(it.index, link.index, &links, DEPTH_MAX));
    let saved = [link].into_iter().chain(above).map(|link| {
        let network = kernel.saved_network(link.index)?;
        Ok(SavedLink::new(link, settings_of(link.name.as_str(), sysctl_root), &network))
    });
    saved.collect()
}

/// Undoes a change. In another boot the kernel began with its defaults, so only values that are still the change's own are undone, on the same
/// device. Returns what failed; nothing if all is as before, or the link is another one now.
pub(super) fn restore(change: &UnfinishedChange, is_same_boot: bool, sysctls: &Sysctls) -> Vec<String> {
    let Some((first, above)) = change.links.split_first() else { return Vec::new() };
    match Socket::open().and_then(|mut kernel| kernel.link(&first.name)) {
        // Another device has the name, so that nothing of the change is left.
        Ok(link) if !first.is(&link) => return Vec::new(),
        Ok(_) => {}
        Err(error) if error.is_not_found() && !is_same_boot => return Vec::new(),
        // A driver may take its link away for a while.
        Err(error) => return vec![chain(&error)],
    }
    let mut failures = Vec::new();
    for step in change.steps.iter().rev() {
        failures.extend(restore_value(step, is_same_boot, sysctls).err());
    }
    if is_same_boot {
        failures.extend(restore_link(first, sysctls));
        // Of these the agent makes its own again.
        failures.extend(above.iter().filter(|saved| is_there(saved)).flat_map(|saved| restore_link(saved, sysctls)));
    }
    failures
}

fn restore_value(step: &JournalStep, is_same_boot: bool, sysctls: &Sysctls) -> Result<(), String> {
    let Ok(Item::Link { link, option }) = step.item.parse() else {
        return Err(format!("not an item of a link: {}", step.item));
    };
    let link = link.parse().map_err(|error| format!("{}: {error}", step.item))?;
    let failed = |error: netlink::Error| format!("{}: {}", step.item, chain(&error));
    let current = match read_link_option(&link, &option, sysctls) {
        Err(error) if error.is_not_found() => return Ok(()),
        read => read.map_err(failed)?,
    };
    let is_due = current.is_some_and(|it| it != step.before && (is_same_boot || it == step.set));
    if is_due {
        write_link_option(&link, &option, &step.before, sysctls).map_err(failed)?;
    }
    Ok(())
}

fn is_there(saved: &SavedLink) -> bool {
    Socket::open().and_then(|mut kernel| kernel.link(&saved.name)).is_ok_and(|link| saved.is(&link))
}

/// Links on the changed one lose their MTU with it, and IPv6 with a small one.
fn restore_link(saved: &SavedLink, sysctls: &Sysctls) -> Vec<String> {
    let mut failures = Vec::new();
    let mut fail = |error: netlink::Error| failures.push(format!("{}: {}", saved.name, chain(&error)));
    let mut kernel = match Socket::open() {
        Ok(kernel) => kernel,
        Err(error) => return vec![chain(&error)],
    };
    let link = match kernel.link(&saved.name) {
        Ok(link) if saved.is(&link) && saved.index == link.index => link,
        // With another number the kernel's lists are about another link.
        Ok(_) => return Vec::new(),
        Err(error) => return vec![chain(&error)],
    };
    if link.mtu.0 != saved.mtu
        && let Err(error) = kernel.change_link(link.index, &[LinkChange::Mtu(Mtu(saved.mtu))])
    {
        fail(error);
    }
    for (key, value) in &saved.settings {
        // One that cannot be written was not changed, either.
        if sysctls.read(key).is_ok_and(|current| current != *value) {
            let _ = sysctls.write(key, value);
        }
    }
    let network = saved.network();
    let begun = Instant::now();
    loop {
        let errors = kernel.restore_network(link.index, &network);
        let is_whole = kernel.saved_network(link.index).is_ok_and(|current| network.is_within(&current));
        if is_whole {
            return failures;
        }
        if begun.elapsed() > SETTLE {
            failures.extend(errors.iter().map(|error| format!("{}: {}", saved.name, chain(error))));
            failures.push(format!("{} lacks addresses or routes that it had", saved.name));
            return failures;
        }
        thread::sleep(PAUSE);
    }
}

/// The IPv6 settings of a link.
fn settings_of(link: &str, sysctl_root: &Path) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    for folder in [format!("net/ipv6/conf/{link}"), format!("net/ipv6/neigh/{link}")] {
        for entry in fs::read_dir(sysctl_root.join(&folder)).into_iter().flatten().flatten() {
            let (key, value) =
                (format!("{folder}/{}", entry.file_name().to_string_lossy()), fs::read_to_string(entry.path()));
            settings.extend(value.ok().map(|value| (key, value.trim_end_matches('\n').to_owned())));
        }
    }
    settings
}
