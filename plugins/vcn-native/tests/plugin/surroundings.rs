//! Promise P2: objects of other programs are left alone. On a host crowded with them each verb leaves them as they
//! were, byte for byte and in their order.

pub(crate) mod crowd;
mod dump;
mod verbs;
