//! What custom resources take in etcd, everything counted, written by the hands that write them: at most 2 KB for a
//! VnicAttachment, whatever the definitions let through.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod made;
mod profiles;
mod scene;
mod users;
