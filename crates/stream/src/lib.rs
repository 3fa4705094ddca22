//! Data without a length known in advance, in bounded memory: an agent writes it, the controller's leader relays it, and
//! `kubectl oke-node` stores it. A support bundle is one; every later kind of recording uses the same pieces.
//!
//! ```text
//!   agent: thread ─▶ ChunkWriter ═pipe═▶ Chunks (HTTP body) ─channel─▶ leader: Relay ─▶ ChunkSender ═▶ Chunks ─▶ kubectl
//! ```
//!
//! A pipe holds a few chunks: a writer waits for a slow reader, so no end buffers more. A stream that ends without
//! [`ChunkWriter::finish`] is an error for its reader, never a short success.

mod entry;
mod limit;
mod pipe;
mod reader;
mod relay;

pub use entry::{copy_entry, end, entry, entry_path};
pub use limit::{STREAM_MAX, expired};
pub use pipe::{ChunkSender, ChunkWriter, Chunks, Disconnected, Incomplete, pipe};
pub use reader::{Piece, TarError, TarReader};
pub use relay::{Relay, RelayError, Relayed};
