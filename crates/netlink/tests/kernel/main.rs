//! Each noun of netlink against the real kernel. `tests/uml/run` and `.ci/test` run the ignored tests in a guest:
//!
//! ```text
//! CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=tests/uml/run cargo test -p netlink --test kernel -- --ignored vlan
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod address;
mod announce;
mod capture;
mod conntrack;
mod ethtool;
mod forward_filter;
mod interrupted;
mod ipv4_only;
mod link;
mod monitor;
mod neighbour;
mod netns;
mod nft;
mod route;
mod rule;
mod saved;
mod sysctl;
mod tap;
mod vlan;
