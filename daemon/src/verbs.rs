//! The records that plugins send of their runs: taken in as they come. Nobody waits for us; what we cannot keep up with, the
//! plugins write to a file.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use telemetry::{ListenError, Listener, VerbRecord};

use crate::metrics::Metrics;
use crate::readable::Readable;

/// Listens in the state directory.
///
/// # Errors
/// When the socket cannot be made.
pub fn listen(state_dir: &Path) -> Result<Listener, ListenError> {
    Listener::bind(state_dir)
}

/// Takes records in for ever.
///
/// # Errors
/// When the socket is broken.
pub async fn run(listener: Listener, metrics: Arc<Metrics>) -> io::Result<()> {
    let readable = Readable::new(listener.as_fd())?;
    loop {
        let received = readable.wait(|| match listener.recv() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Some(None)),
            received => received.map(|record| Some(Some(record))),
        });
        match received.await? {
            Some(record) => take_in(&record, &metrics),
            None => metrics.verb_record_refused(),
        }
    }
}

fn take_in(record: &VerbRecord, metrics: &Metrics) {
    metrics.verb(record);
    if record.code == 0 {
        return;
    }
    let VerbRecord { plugin, verb, container_id, pod_namespace, pod_name, code, message, .. } = record;
    let namespace = pod_namespace.as_deref().unwrap_or_default();
    let pod = pod_name.as_deref().unwrap_or_default();
    tracing::warn!(event = "cni.failed", %plugin, %verb, container_id, namespace, pod, code, "{message}");
}
