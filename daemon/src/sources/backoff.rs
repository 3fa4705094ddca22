//! Backoff: capped, jittered, unlimited in number (promise P4). Chance is a parameter, so that tests are deterministic.

use std::time::Duration;

use backoff::Backoff;
pub(crate) use backoff::chance;
use tokio::time::sleep;

/// Between failures of the same thing.
pub(crate) const RETRY: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(30) };

/// Between two questions to sources that are incomplete: OKE takes a minute to create a NativePodNetwork.
pub(crate) const UNSETTLED: Backoff = Backoff { first: Duration::from_secs(2), cap: Duration::from_secs(10) };

/// How long events are gathered before a reconcile. It grows while another program reverts our repairs, so that the conflict
/// does not use up the machine. It stays well below the second within which drift is repaired: on a busy machine the look and
/// the repair take time as well.
pub(crate) const DEBOUNCE: Backoff = Backoff { first: Duration::from_millis(50), cap: Duration::from_millis(400) };

/// Tries until it succeeds. `report` gets why it failed, and nothing once it has succeeded.
pub(crate) async fn persist<T>(
    mut attempt: impl AsyncFnMut() -> Result<T, String>,
    report: impl Fn(Option<String>),
) -> T {
    let mut failures = 0;
    loop {
        match attempt().await {
            Ok(done) => {
                report(None);
                return done;
            }
            Err(why) => report(Some(format!("{why}; the agent retries"))),
        }
        failures += 1;
        sleep(RETRY.delay(failures, chance())).await;
    }
}

/// Between nine tenths and all of a regular interval, so that the nodes of a pool do not poll at the same time.
pub(crate) fn jittered(interval: Duration, chance: f64) -> Duration {
    interval.mul_f64(0.9 + chance.clamp(0.0, 1.0) / 10.0)
}
