//! The agent on a real kernel. A fresh network namespace is the node, and veth links are its VNICs. A metadata service
//! answers on its loopback, and the real program runs in it.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, its helper functions too")]
#![expect(clippy::indexing_slicing, clippy::panic, reason = "likewise")]

mod attachments;
mod bundle;
mod called;
mod configuration;
mod damaged;
mod dead;
mod directories;
mod entries;
mod files;
mod flapping;
mod follow_up;
mod foreign_rules;
mod hanging;
mod health;
mod host;
mod interference;
mod kernel_settings;
mod link_policies;
mod links;
mod metadata;
mod node;
mod node_policies;
mod okes_vnics;
mod orphans;
mod outage;
mod own_addresses;
mod planted;
mod pod;
mod pod_network;
mod pods;
mod policy_files;
mod port;
mod program;
mod records;
mod refused;
mod remembered;
mod requested;
mod router_advertisements;
mod running;
mod socket;
mod stuck;
mod subcommands;
mod surroundings;
mod why;
