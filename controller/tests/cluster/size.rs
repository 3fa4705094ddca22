//! What custom resources take in etcd, everything counted, written by the controller's own writers: at most 2 KB for a
//! VnicAttachment that a profile made, 2.6 KB for a user's own, whatever the definitions let through.

mod made;
mod profiles;
mod scene;
mod users;
