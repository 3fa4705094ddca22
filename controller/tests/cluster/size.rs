//! The size of custom resources in etcd, including all metadata, written by the controller's own writers and the agent. With any
//! valid spec, a VnicAttachment of a profile has at most 2.1 KB, and a user's own 2.7 KB. If pods share the VNIC, 0.6 KB are
//! added.

mod made;
mod profiles;
mod scene;
mod users;
