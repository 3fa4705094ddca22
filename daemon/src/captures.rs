//! Captures of this node for support: its state and packets, which this program writes, and logs of units, which the Pod of a NodeTask
//! adds. They stay in a private folder until the controller fetches or removes them, or their time is over.
//!
//! ```text
//!   controller ─POST─▶ start ─▶ thread: state ─▶ redaction ─▶ state.tar ──┐
//!                               thread: packet socket ─▶ packets.pcap ────┼─▶ send: one tar ─▶ controller
//!   Pod of the task: journal ─▶ redaction ─▶ logs/UNIT.log ───────────────┘
//! ```

mod error;
mod headers;
pub mod logs;
mod packets;
mod pcap;
mod send;
mod space;
mod store;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use api::capture::{CAPTURE_TTL_MAX, CAPTURES_MAX, CaptureProgress, CaptureStart, LOG_UNITS_MAX, UNIT_LOG_BYTES_MAX};
use channel::Reply;
use resident::config::Layers;
use stream::{Chunks, pipe};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::cli::bundle;
use crate::redaction::Redactions;
use crate::settings::{CaptureScope, Settings};
pub(crate) use error::CaptureError;
use packets::{CapturedPackets, PacketSource, bytes_max};
use space::FreeSpace;
use store::CaptureFolder;

/// What a bundle's state may take, in bytes.
const STATE_BYTES_MAX: u64 = 32 << 20;
/// The longest uid, which names a folder.
const UID_MAX: usize = 63;

/// Removes the captures of an earlier agent. Nothing else of the agent waits for that.
pub(crate) fn clear(data_dir: &Path) {
    let base = data_dir.join(vcn::CAPTURES_FOLDER);
    if let Err(error) = store::clear(&base) {
        tracing::warn!(event = "captures.not_removed", path = %base.display(), %error, "remove the files in this folder");
    }
}

/// The captures of this node.
#[derive(Clone)]
pub(crate) struct Captures {
    settings: Arc<Settings>,
    layers: Layers,
    base: PathBuf,
    kept: Arc<Mutex<BTreeMap<String, Kept>>>,
    sending: Arc<Semaphore>,
}

struct Kept {
    start: CaptureStart,
    folder: CaptureFolder,
    stop: Arc<AtomicBool>,
    /// Its parts, or why it failed and was removed; none while it runs.
    outcome: Option<Result<CapturedParts, String>>,
}

/// What a capture has.
#[derive(Clone, Debug, Default)]
struct CapturedParts {
    state: Option<Redactions>,
    packets: Option<CapturedPackets>,
    has_payload: bool,
    has_logs: bool,
    bytes: u64,
}

impl Captures {
    /// Those of an agent that has just started.
    pub(crate) fn new(settings: Arc<Settings>, layers: Layers) -> Self {
        let base = settings.data_dir.join(vcn::CAPTURES_FOLDER);
        Self { settings, layers, base, kept: Arc::default(), sending: Arc::new(Semaphore::new(1)) }
    }

    /// Starts one. One that is there, with the same parts, stays as it is.
    pub(crate) fn start(&self, start: CaptureStart) -> Result<CaptureProgress, CaptureError> {
        let mut kept = self.lock();
        if let Some(known) = kept.get(&start.uid) {
            return if known.start == start { Ok(known.progress()) } else { Err(CaptureError::Other) };
        }
        let source = self.check_with(&start, &kept)?;
        let folder = CaptureFolder::create(&self.base, &start.uid, start.logs);
        let folder = folder.map_err(|error| CaptureError::Write("the capture's folder", error))?;
        let stop = Arc::new(AtomicBool::new(false));
        let work = Work {
            captures: self.clone(),
            start: start.clone(),
            folder: folder.clone(),
            stop: stop.clone(),
            runtime: Handle::current(),
        };
        if let Err(error) = thread::Builder::new().name("capture".to_owned()).spawn(move || work.run(source)) {
            folder.remove();
            return Err(CaptureError::Thread(error));
        }
        tracing::info!(event = "capture.started", uid = start.uid);
        kept.insert(start.uid.clone(), Kept { start, folder, stop, outcome: None });
        Ok(CaptureProgress::default())
    }

    /// Whether one could start.
    pub(crate) fn check(&self, start: &CaptureStart) -> Result<(), CaptureError> {
        self.check_with(start, &self.lock()).map(drop)
    }

    fn check_with(
        &self,
        start: &CaptureStart,
        kept: &BTreeMap<String, Kept>,
    ) -> Result<Option<PacketSource>, CaptureError> {
        match (self.settings.captures, &start.packets) {
            (CaptureScope::Off, _) => return Err(CaptureError::NotEnabled("off")),
            (CaptureScope::Headers, Some(packets)) if packets.payload => {
                return Err(CaptureError::NotEnabled("headers, so packets have no payload"));
            }
            _ => {}
        }
        check(start)?;
        if kept.values().filter(|kept| !matches!(kept.outcome, Some(Err(_)))).count() >= CAPTURES_MAX {
            return Err(CaptureError::TooMany(CAPTURES_MAX));
        }
        FreeSpace::of(&self.base)?.check(size_max(start))?;
        start.packets.as_ref().map(PacketSource::open).transpose()
    }

    /// How far one is.
    pub(crate) fn progress(&self, uid: &str) -> Result<CaptureProgress, CaptureError> {
        Ok(self.lock().get(uid).ok_or(CaptureError::Missing)?.progress())
    }

    /// Stops and removes one, if it is there.
    pub(crate) fn remove(&self, uid: &str) {
        self.remove_if(uid, |_| true);
    }

    /// Begins to send one. 429 while another one is sent.
    pub(crate) fn open(&self, uid: &str) -> Result<Chunks, Reply> {
        let (folder, parts) = {
            let kept = self.lock();
            let found = kept.get(uid).ok_or_else(|| CaptureError::Missing.reply())?;
            match &found.outcome {
                None => return Err(Reply::text(409, "the capture is not complete yet\n")),
                Some(Err(error)) => return Err(Reply::text(410, &format!("the capture failed: {error}\n"))),
                Some(Ok(parts)) => (found.folder.clone(), parts.clone()),
            }
        };
        let Ok(permit) = self.sending.clone().try_acquire_owned() else {
            return Err(Reply::text(429, "another capture of this node is being sent; retry\n"));
        };
        let (sender, chunks) = pipe();
        let (node, uid) = (self.settings.node_name.clone().unwrap_or_default(), uid.to_owned());
        let write = move || {
            let mut writer = sender.into_writer();
            match send::send(&node, &folder, &parts, &mut writer).and_then(|()| writer.finish()) {
                Ok(()) => tracing::info!(event = "capture.sent", uid),
                Err(error) => {
                    tracing::warn!(event = "capture.not_sent", uid, %error, "the controller got only a part of the capture")
                }
            }
            drop(permit);
        };
        match thread::Builder::new().name("capture-send".to_owned()).spawn(write) {
            Ok(_) => Ok(chunks),
            Err(error) => Err(CaptureError::Thread(error).reply()),
        }
    }

    fn remove_if(&self, uid: &str, is_selected: impl FnOnce(&Kept) -> bool) {
        let mut kept = self.lock();
        if kept.get(uid).is_some_and(is_selected)
            && let Some(removed) = kept.remove(uid)
        {
            removed.stop.store(true, Ordering::Relaxed);
            removed.folder.remove();
            tracing::info!(event = "capture.removed", uid);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Kept>> {
        // Each change is complete by itself.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn progress(&self) -> CaptureProgress {
        match &self.outcome {
            None => CaptureProgress::default(),
            Some(Err(error)) => CaptureProgress { error: Some(error.clone()), ..CaptureProgress::default() },
            Some(Ok(parts)) => CaptureProgress {
                is_complete: true,
                error: None,
                packets: parts.packets.as_ref().map_or(0, |packets| packets.packets),
                lost_packets: parts.packets.as_ref().map_or(0, |packets| packets.lost),
                bytes: parts.bytes,
            },
        }
    }
}

/// The thread of a capture.
struct Work {
    captures: Captures,
    start: CaptureStart,
    folder: CaptureFolder,
    stop: Arc<AtomicBool>,
    /// For the end of its time.
    runtime: Handle,
}

impl Work {
    fn run(self, source: Option<PacketSource>) {
        let outcome = self.capture(source);
        let mut kept = self.captures.lock();
        let Some(own) = kept.get_mut(&self.start.uid).filter(|kept| Arc::ptr_eq(&kept.stop, &self.stop)) else {
            // Removed meanwhile, perhaps before the last file was made.
            if !kept.contains_key(&self.start.uid) {
                self.folder.remove();
            }
            return;
        };
        let uid = &self.start.uid;
        own.outcome = Some(match outcome {
            Ok(parts) => {
                tracing::info!(event = "capture.complete", uid, bytes = parts.bytes);
                Ok(parts)
            }
            Err(error) => {
                self.folder.remove();
                tracing::warn!(event = "capture.failed", uid, %error, "its files were removed");
                Err(error.to_string())
            }
        });
        let (captures, uid, stop) = (self.captures.clone(), self.start.uid.clone(), self.stop.clone());
        let time = Duration::from_secs(self.start.ttl_seconds.clamp(1, CAPTURE_TTL_MAX).into());
        self.runtime.spawn(async move {
            sleep(time).await;
            captures.remove_if(&uid, |kept| Arc::ptr_eq(&kept.stop, &stop));
        });
    }

    fn capture(&self, source: Option<PacketSource>) -> Result<CapturedParts, CaptureError> {
        let Self { start, folder, stop, .. } = self;
        let mut parts = CapturedParts { has_logs: start.logs, ..CapturedParts::default() };
        parts.has_payload = start.packets.as_ref().is_some_and(|packets| packets.payload);
        thread::scope(|scope| {
            // Both at once: state is most useful while the packets are on their way.
            let packets = source.map(|source| {
                thread::Builder::new()
                    .name("packets".to_owned())
                    .spawn_scoped(scope, || source.write(&folder.packets(), stop))
            });
            let packets = packets.transpose().map_err(CaptureError::Thread)?;
            let state = start.state.then(|| self.state()).transpose();
            if state.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            let packets = packets
                .map(|thread| thread.join().unwrap_or_else(|_| Err(CaptureError::Packets("the thread ended".into()))));
            (parts.state, parts.packets) = (state?, packets.transpose()?);
            Ok::<(), CaptureError>(())
        })?;
        let sizes = [folder.state(), folder.packets()].map(|path| path.metadata().map_or(0, |found| found.len()));
        parts.bytes = sizes.iter().sum();
        Ok(parts)
    }

    fn state(&self) -> Result<Redactions, CaptureError> {
        let failed = |error| CaptureError::Write("the state", error);
        let file = store::create(&self.folder.state()).map_err(failed)?;
        let Captures { settings, layers, .. } = &self.captures;
        let (_, redactions) = bundle::write_to(std::io::BufWriter::new(file), settings, layers).map_err(failed)?;
        FreeSpace::of(self.folder.path())?.check(0)?;
        Ok(redactions)
    }
}

fn check(start: &CaptureStart) -> Result<(), CaptureError> {
    let is_uid = |uid: &str| {
        (1..=UID_MAX).contains(&uid.len()) && uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    if !is_uid(&start.uid) {
        return Err(CaptureError::Request("the uid is not valid".to_owned()));
    }
    if !start.state && start.packets.is_none() && !start.logs {
        return Err(CaptureError::Request("a capture needs state, packets or logs".to_owned()));
    }
    Ok(())
}

/// The most bytes that a capture takes on the disk.
fn size_max(start: &CaptureStart) -> u64 {
    let logs = LOG_UNITS_MAX as u64 * UNIT_LOG_BYTES_MAX;
    let state = if start.state { STATE_BYTES_MAX } else { 0 };
    state + start.packets.as_ref().map_or(0, bytes_max) + if start.logs { logs } else { 0 }
}

#[cfg(test)]
mod tests {
    use api::node_task::PacketCapture;

    use super::*;
    use crate::fixture::agent;

    #[test]
    fn setting_decides_what_is_captured() {
        let packets = |payload| Some(PacketCapture { payload, ..PacketCapture::default() });
        for (scope, is_permitted) in
            [(None, [false; 3]), (Some("headers"), [true, true, false]), (Some("payload"), [true; 3])]
        {
            let arguments = scope.map(|scope| format!("--captures={scope}"));
            let settings = agent(&arguments.as_deref().into_iter().collect::<Vec<_>>()).settings.clone();
            let captures = Captures::new(settings, Layers::default());
            let found = [None, packets(false), packets(true)].map(|packets| {
                let start = CaptureStart { uid: "u".to_owned(), state: true, packets, ..CaptureStart::default() };
                // The free space is not part of this test.
                !matches!(captures.check(&start), Err(CaptureError::NotEnabled(_)))
            });
            assert_eq!(found, is_permitted, "{scope:?}");
        }
    }
}
