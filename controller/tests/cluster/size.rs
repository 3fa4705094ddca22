//! What custom resources take in etcd, everything counted, written by the hands that write them: at most 2 KB for a
//! VnicAttachment, whatever the definitions let through.

mod made;
mod profiles;
mod scene;
mod users;
