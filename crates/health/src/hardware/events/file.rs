//! The file of events, so that a restart of the agent forgets none of this boot.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use super::{Event, Events, MAX_EVENTS};
use crate::open::{FinalLink, open};

/// Events of accelerators, below the agent's folder in /run.
pub(crate) const EVENTS_FILE: &str = "accelerator-events.json";

/// Events of the rest of the machine.
pub(crate) const HOST_EVENTS_FILE: &str = "hardware-events.json";

/// The longest file that is read: more than the most events take.
const MAX_BYTES: u64 = 256 << 10;

impl Events {
    /// The events of this boot; none if the file is of another boot, damaged or missing.
    pub fn load(path: &Path, boot_id: &str) -> Self {
        let read = || -> io::Result<Self> {
            let file = open(path, FinalLink::Refuse)?;
            let mut text = String::new();
            file.take(MAX_BYTES).read_to_string(&mut text)?;
            Ok(serde_json::from_str(&text)?)
        };
        let known = read().ok().filter(|events| events.boot_id == boot_id);
        let mut events = known.unwrap_or_else(|| Self::of_boot(boot_id));
        events.events.truncate(MAX_EVENTS);
        events
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// As the kernel answers.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_vec(self)?)?;
        fs::rename(new, path)
    }

    /// Whether another one has the same events.
    pub fn has_same_events(&self, other: &Self) -> bool {
        let key = |event: &Event| (event.device.clone(), event.code.clone(), event.count, event.advice);
        self.events.iter().map(key).eq(other.events.iter().map(key))
    }
}
