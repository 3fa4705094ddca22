//! What the controller shows over HTTP: health, readiness and metrics.

#[cfg(test)]
mod documents;
pub mod metrics;
pub(crate) mod status_server;
#[cfg(test)]
mod tests;
