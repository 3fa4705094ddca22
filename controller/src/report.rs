//! What the controller shows over HTTP: health, readiness and metrics.

#[cfg(test)]
mod documents;
pub mod metrics;
#[cfg(test)]
mod tests;
