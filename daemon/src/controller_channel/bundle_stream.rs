//! The support bundle of this node as a stream for the controller: one at a time, on a thread that waits for a slow reader.

use std::sync::Arc;
use std::thread;

use channel::Reply;
use resident::config::Layers;
use stream::{ChunkWriter, Chunks, pipe};
use tokio::sync::Semaphore;

use crate::cli::bundle;
use crate::settings::Settings;

pub(super) struct BundleStream {
    settings: Arc<Settings>,
    layers: Layers,
    free: Arc<Semaphore>,
}

impl BundleStream {
    pub(super) fn new(settings: Arc<Settings>, layers: Layers) -> Self {
        Self { settings, layers, free: Arc::new(Semaphore::new(1)) }
    }

    /// Begins to write one. 429 while another one is written.
    pub(super) fn open(&self) -> Result<Chunks, Reply> {
        let Ok(permit) = self.free.clone().try_acquire_owned() else {
            return Err(Reply::text(429, "another bundle of this node is being sent; retry\n"));
        };
        let (sender, chunks) = pipe();
        let (settings, layers) = (self.settings.clone(), self.layers.clone());
        let write = move || {
            let written = bundle::write_to(sender.into_writer(), &settings, &layers);
            let written = written.and_then(|(writer, _)| ChunkWriter::finish(writer));
            match written {
                Ok(()) => tracing::info!(event = "bundle.sent"),
                Err(error) => tracing::warn!(event = "bundle.failed", %error, "the controller got a part of it"),
            }
            drop(permit);
        };
        match thread::Builder::new().name("bundle".to_owned()).spawn(write) {
            Ok(_) => Ok(chunks),
            Err(error) => Err(Reply::text(503, &format!("start a thread: {error}\n"))),
        }
    }
}
