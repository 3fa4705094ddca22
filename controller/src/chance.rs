//! Chance, for jitter. A parameter of whatever uses it; this is where it comes from.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A number in 0.0–1.0. No secret depends on it, and it costs no dependency: the standard library seeds each `RandomState`
/// from the system.
#[must_use]
pub fn chance() -> f64 {
    let bits = u32::try_from(RandomState::new().build_hasher().finish() >> 32).unwrap_or_default();
    f64::from(bits) / f64::from(u32::MAX)
}
