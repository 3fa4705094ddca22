//! Passes the tar of an agent on, as it arrives.

use std::time::Duration;

use channel::ReplyStream;
use resident::logging::chain;
use stream::{ChunkSender, Disconnected, Relay, Relayed};
use tokio::time::Instant;

/// Until the next bytes. The agent waits up to 25 s for the reconcile in progress.
const SILENCE: Duration = Duration::from_secs(40);

/// Passes a reply on for so long. What it lacks is a problem of the result; the last entry is always whole.
pub(super) async fn relay(
    mut relay: Relay,
    mut reply: ReplyStream,
    time: Duration,
    out: &ChunkSender,
) -> Result<Relayed, Disconnected> {
    let end = Instant::now() + time;
    let error = loop {
        let bytes = match reply.next(SILENCE.min(end.saturating_duration_since(Instant::now()))).await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => break None,
            Err(error) => break Some(chain(&error)),
        };
        let mut passed = Vec::new();
        let pushed = relay.push(&bytes, &mut passed);
        out.send(passed.into()).await?;
        match pushed {
            Ok(true) => {}
            Ok(false) => break None,
            Err(error) => break Some(chain(&error)),
        }
    };
    let relayed = relay.finish(error);
    for zeros in relayed.zero_chunks() {
        out.send(zeros.into()).await?;
    }
    Ok(relayed)
}
