//! Promise P2: what is not ours is left alone. On a host crowded with other people's things each verb leaves them as they
//! were, byte for byte and in their order.

pub(crate) mod crowd;
mod dump;
mod verbs;
