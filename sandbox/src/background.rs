//! A thread that works until its handle is dropped.

use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::error::{ErrorContext, Result};

/// The handle. Dropping it stops the thread and waits for its end.
#[derive(Debug)]
pub(crate) struct Background {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts the thread. `work` ends when its receiver does.
    pub(crate) fn start(name: &str, work: impl FnOnce(oneshot::Receiver<()>) + Send + 'static) -> Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name(format!("sandbox-{name}")).spawn(move || work(stopped));
        Ok(Self { stop: Some(stop), thread: Some(thread.during(|| format!("start the thread of the {name}"))?) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by the thread itself.
            let _ = thread.join();
        }
    }
}
