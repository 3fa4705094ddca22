//! What custom resources take in etcd, everything counted, written by the controller's own writers and the agent: at most
//! 2.1 KB for a VnicAttachment that a profile made, 2.7 KB for a user's own, 0.6 KB more where pods share the VNIC, whatever the definitions let through.

mod made;
mod profiles;
mod scene;
mod users;
