//! Black-box tests and benchmarks of the whole suite: real programs, a real kernel, namespaces of their own.
//!
//! ```text
//!   bin/pod-path-bench ─▶ bench ─┬─▶ node      a host, its VNIC links and routers, pods: all in fresh namespaces
//!                                ├─▶ contender ptp + host-local, vcn-native, the floor: how each is called
//!                                ├─▶ verb      one process, from its start to its end: wall and CPU time
//!                                ├─▶ race      the contenders one after the other, round by round
//!                                ├─▶ burst     many pods at once
//!                                └─▶ report    a table of medians, ratios and targets
//!   yardsticks                                  what any plugin must spend at least (a package of its own: no other's features)
//! ```

pub mod bench;
pub mod built;
