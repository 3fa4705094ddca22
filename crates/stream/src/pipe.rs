//! A pipe with a bounded number of chunks: its reader is the body of an HTTP response, its writer a thread or a task.

use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame};
use thiserror::Error;
use tokio::sync::mpsc;

/// The longest chunk, in bytes.
pub(crate) const CHUNK_MAX: usize = 32 * 1024;
/// The chunks that wait for the reader.
const WAITING: usize = 2;

/// The writing end, for tasks.
#[derive(Debug)]
pub struct ChunkSender {
    parts: mpsc::Sender<Part>,
    sent: AtomicU64,
}

/// The writing end, for a thread that may block. It collects small writes.
#[derive(Debug)]
pub struct ChunkWriter {
    sender: ChunkSender,
    buffer: Vec<u8>,
}

/// The reading end of a pipe.
#[derive(Debug)]
pub struct Chunks {
    receiver: mpsc::Receiver<Part>,
    is_complete: bool,
}

#[derive(Debug)]
enum Part {
    Data(Bytes),
    /// All was written. Without it, the writer failed.
    End,
}

/// The reader is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the reader closed the stream")]
pub struct Disconnected;

/// The writer ended before all was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the stream ended before it was complete")]
pub struct Incomplete;

/// A bounded pipe from a thread to a task.
pub fn pipe() -> (ChunkSender, Chunks) {
    let (sender, receiver) = mpsc::channel(WAITING);
    (ChunkSender { parts: sender, sent: AtomicU64::new(0) }, Chunks { receiver, is_complete: false })
}

impl ChunkSender {
    /// Sends bytes, in chunks; waits while the reader is slower.
    ///
    /// # Errors
    /// When the reader is gone.
    pub async fn send(&self, mut bytes: Bytes) -> Result<(), Disconnected> {
        while !bytes.is_empty() {
            let chunk = bytes.split_to(bytes.len().min(CHUNK_MAX));
            let length = chunk.len() as u64;
            self.parts.send(Part::Data(chunk)).await.map_err(|_| Disconnected)?;
            self.sent.fetch_add(length, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The bytes that [`Self::send`] passed on: the reader has all but the last few chunks.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Ends a complete stream.
    ///
    /// # Errors
    /// When the reader is gone.
    pub async fn finish(self) -> Result<(), Disconnected> {
        self.parts.send(Part::End).await.map_err(|_| Disconnected)
    }

    /// The same pipe, for a thread.
    pub const fn into_writer(self) -> ChunkWriter {
        ChunkWriter { sender: self, buffer: Vec::new() }
    }
}

impl ChunkWriter {
    /// Ends a complete stream.
    ///
    /// # Errors
    /// When the reader is gone.
    pub fn finish(mut self) -> io::Result<()> {
        io::Write::flush(&mut self)?;
        self.put(Part::End)
    }

    fn put(&self, part: Part) -> io::Result<()> {
        self.sender.parts.blocking_send(part).map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, Disconnected))
    }
}

impl io::Write for ChunkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.get(..CHUNK_MAX - self.buffer.len()).unwrap_or(bytes);
        self.buffer.extend_from_slice(taken);
        if self.buffer.len() >= CHUNK_MAX {
            self.flush()?;
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        match mem::take(&mut self.buffer) {
            buffer if buffer.is_empty() => Ok(()),
            buffer => self.put(Part::Data(buffer.into())),
        }
    }
}

impl Chunks {
    /// The next bytes; none after the end of a complete stream.
    ///
    /// # Errors
    /// When the writer ended early.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Incomplete> {
        let part = self.receiver.recv().await;
        self.read(part)
    }

    fn read(&mut self, part: Option<Part>) -> Result<Option<Bytes>, Incomplete> {
        match part {
            Some(Part::Data(bytes)) => Ok(Some(bytes)),
            Some(Part::End) => {
                self.is_complete = true;
                Ok(None)
            }
            None if self.is_complete => Ok(None),
            None => Err(Incomplete),
        }
    }
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = Incomplete;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Incomplete>>> {
        self.receiver.poll_recv(context).map(|part| self.read(part).transpose().map(|read| read.map(Frame::data)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }

    #[test]
    fn writer_waits_for_a_slow_reader() {
        let (sender, mut chunks) = pipe();
        let written = Arc::new(AtomicUsize::new(0));
        let count = written.clone();
        let thread = thread::spawn(move || {
            let mut writer = sender.into_writer();
            for _ in 0..1000 {
                count.fetch_add(writer.write(&[7; 10_000]).unwrap(), Ordering::SeqCst);
            }
            writer.finish()
        });
        let mut read = 0;
        while let Some(chunk) = block_on(chunks.next()).unwrap() {
            read += chunk.len();
            // The chunks in the pipe, one that waits for a place, and one that is being filled. A chunk may arrive before it is counted.
            let ahead = written.load(Ordering::SeqCst).saturating_sub(read);
            assert!(chunk.len() <= CHUNK_MAX && ahead <= (WAITING + 2) * CHUNK_MAX, "{ahead} bytes ahead");
        }
        thread.join().unwrap().unwrap();
        assert_eq!(read, written.load(Ordering::SeqCst));
        assert_eq!(block_on(chunks.next()), Ok(None));
    }

    #[test]
    fn stream_without_end_is_an_error() {
        let (sender, mut chunks) = pipe();
        let mut writer = sender.into_writer();
        writer.write_all(b"half").unwrap();
        writer.flush().unwrap();
        drop(writer);
        assert_eq!(block_on(chunks.next()), Ok(Some(Bytes::from("half"))));
        assert_eq!(block_on(chunks.next()), Err(Incomplete));
    }

    #[test]
    fn writer_fails_when_the_reader_is_gone() {
        let (sender, chunks) = pipe();
        drop(chunks);
        let mut writer = sender.into_writer();
        let failed = writer.write_all(&[0; CHUNK_MAX]).unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::BrokenPipe);
        assert!(writer.finish().is_err());
    }
}
