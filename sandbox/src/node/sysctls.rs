//! The settings that a new network namespace does not start with: the kernel copies the machine's own IPv4 settings
//! into it (`net.core.devconf_inherit_init_net`). A sandbox must not depend on how the machine below is configured.

use netlink::Sysctls;

use crate::error::{ErrorContext, Result};

/// What `ipv4_devconf` and `ipv4_devconf_dflt` are compiled with (net/ipv4/devinet.c); all others are 0.
const SET: [&str; 5] =
    ["accept_redirects", "secure_redirects", "send_redirects", "shared_media", "arp_evict_nocarrier"];
const UNSET: &str = "forwarding rp_filter accept_local src_valid_mark proxy_arp proxy_arp_pvlan arp_filter arp_announce \
    arp_ignore arp_accept arp_notify log_martians route_localnet promote_secondaries ignore_routes_with_linkdown";

/// Gives the calling thread's network namespace a fresh kernel's settings. To be called before links are made: they
/// copy the defaults.
pub(crate) fn reset() -> Result<()> {
    let sysctls = Sysctls::default();
    let write = |conf: &str, setting: &str, value: &str| {
        match sysctls.write(&format!("net/ipv4/conf/{conf}/{setting}"), value) {
            // Older kernels lack some.
            Err(error) if error.is_not_found() => Ok(()),
            result => result.map(drop).during(|| "give a node a fresh kernel's settings"),
        }
    };
    for conf in ["all", "default"] {
        for setting in UNSET.split(' ') {
            write(conf, setting, "0")?;
        }
        for setting in SET {
            write(conf, setting, "1")?;
        }
    }
    write("all", "accept_source_route", "0")?;
    write("default", "accept_source_route", "1")
}
