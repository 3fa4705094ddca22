//! VnicAttachments against an in-memory OCI: the real worker, with objects that no API server keeps.

mod addresses;
mod attaching;
mod compartment_scan;
mod conflicts;
mod crashes;
mod crowd;
mod doubles;
mod due;
mod failed_attempts;
mod failures;
mod keeping;
mod leaving;
mod marks;
mod objects;
mod pod_networks;
mod private_ip;
mod ready;
mod releases;
mod rights;
mod scene;
mod tokens;
mod unlisted;
