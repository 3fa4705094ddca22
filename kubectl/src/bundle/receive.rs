//! Stores the leader's tar as it arrives.

use stream::{Relay, Relayed};

use super::file::TarFile;
use super::progress::{Progress, size};
use crate::failure::words;
use crate::leader::stream::LeaderStream;

/// Appends what a stream has to the file, without its end. What it lacks is a problem of the result; the last entry is always whole.
pub(crate) async fn receive(
    mut relay: Relay,
    mut stream: LeaderStream,
    progress: &Progress,
    file: &mut TarFile,
) -> anyhow::Result<Relayed> {
    let error = loop {
        let bytes = match stream.next().await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => break None,
            Err(error) => break Some(words(&error)),
        };
        let mut passed = Vec::new();
        let pushed = relay.push(&bytes, &mut passed);
        file.append(&passed)?;
        progress.set(format!("received {}, at {}", size(relay.relayed().bytes), relay.current()));
        match pushed {
            Ok(true) => {}
            Ok(false) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    let relayed = relay.finish(error);
    for zeros in relayed.zero_chunks() {
        file.append(zeros)?;
    }
    Ok(relayed)
}
