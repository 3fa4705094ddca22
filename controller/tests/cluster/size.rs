//! The size of custom resources in etcd, including all metadata, written by the controller's own writers: at most 2 KB for a
//! VnicAttachment of a profile, 2.6 KB for a user's own, with any valid spec.

mod made;
mod profiles;
mod scene;
mod users;
