//! The size of custom resources in etcd, including all metadata, written by the controller's own writers and the agent: at
//! most 2.1 KB for a VnicAttachment of a profile, 2.7 KB for a user's own, 0.6 KB more if pods share the VNIC, with any valid
//! spec.

mod made;
mod profiles;
mod scene;
mod users;
