//! VnicAttachments and what the cloud has for them, instance by instance: read → plan (pure) → apply → status.

#[cfg(test)]
pub(crate) mod sample;
