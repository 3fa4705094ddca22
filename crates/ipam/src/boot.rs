//! Which boot this is and how long it has lasted. Wall clocks jump; state that dies with the boot needs no wall clock.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::{Error, file};

const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";

/// The kernel's identifier of this boot (a UUID).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootId(String);

impl BootId {
    /// This boot's.
    ///
    /// # Errors
    /// When /proc is not mounted.
    pub fn current() -> Result<Self, Error> {
        let path = Path::new(BOOT_ID_PATH);
        let mut text = [0; 64];
        // The kernel gives all of it, 37 bytes, at the first read; to read its size and its end first costs three more.
        let length = file::open(path, OFlag::O_RDONLY)
            .and_then(|mut file| file.read(&mut text))
            .map_err(|source| Error::Read { path: path.into(), source })?;
        let text = text.get(..length).unwrap_or_default();
        Ok(Self(String::from_utf8_lossy(text).trim().to_owned()))
    }

    /// The id as the kernel writes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A boot id by its text, for tests and tools that look at another node's files.
    pub fn from_text(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// Time since boot, suspended time included, in milliseconds (CLOCK_BOOTTIME).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootTime(pub u64);

impl BootTime {
    /// Now.
    ///
    /// # Errors
    /// Never on a kernel we run on (CLOCK_BOOTTIME is older than 5.15); the call can fail in theory.
    pub fn now() -> Result<Self, Error> {
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME)
            .map_err(|errno| Error::Clock { source: std::io::Error::from(errno) })?;
        Ok(Self(u64::try_from(Duration::from(now).as_millis()).unwrap_or(u64::MAX)))
    }

    /// This moment plus `duration`.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How long ago `earlier` was; zero when it lies ahead.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}
