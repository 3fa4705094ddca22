//! What commands of our programs share, on every system that they run on. [`page`] writes text for a terminal, [`chain`] an error
//! in one line, [`list`] reads whole lists of the API server. `kubectl oke-node` links it; Linux-only code belongs to
//! crates/resident.

mod error;
mod list;
pub mod page;

pub use error::chain;
pub use list::{ListError, list};
