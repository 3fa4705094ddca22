//! What a bundle of the cluster is made of: the objects, which are read with the user's own credentials, and the leader's stream. A
//! capture is received likewise.

pub(crate) mod file;
pub(crate) mod objects;
pub(crate) mod progress;
pub(crate) mod receive;
mod reduced;
pub(crate) mod token;
