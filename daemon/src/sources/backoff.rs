//! Pauses: capped, jittered, for ever (promise P4). Chance is a parameter, so tests know what comes.

use std::time::Duration;

use patience::Backoff;
pub use patience::chance;

/// Between failures of the same thing.
pub const RETRY: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(30) };

/// Between two looks at sources that are not as they will be: OKE takes a minute to make a NativePodNetwork.
pub const UNSETTLED: Backoff = Backoff { first: Duration::from_secs(2), cap: Duration::from_secs(10) };

/// How long events are gathered before the kernel is looked at. It grows while somebody undoes our repairs, so that two
/// programs fighting do not take the machine; it stays well below the second within which drift is repaired, because on a
/// busy machine the look and the repair take their time, too.
pub const DEBOUNCE: Backoff = Backoff { first: Duration::from_millis(50), cap: Duration::from_millis(400) };

/// Between nine tenths and all of a regular interval, so that the nodes of a pool do not ask together.
#[must_use]
pub fn jittered(interval: Duration, chance: f64) -> Duration {
    interval.mul_f64(0.9 + chance.clamp(0.0, 1.0) / 10.0)
}
