//! Kernel settings against the real `/proc/sys`.

use netlink::{LinkKind, Netns, NewLink, Socket, Sysctls};
use vcn::IfName;

#[test]
fn setting_of_link_with_dot_in_name_is_found() {
    let netns = Netns::create().unwrap();
    let name = IfName::new("eth0.100").unwrap();
    Socket::open_in(&netns).unwrap().add_link(&NewLink::new(name, LinkKind::Bridge)).unwrap();
    netns
        .run(|| {
            let sysctls = Sysctls::default();
            let key = "net/ipv4/conf/eth0.100/rp_filter";
            let other = if sysctls.read(key).unwrap() == "2" { "0" } else { "2" };
            assert!(sysctls.write(key, other).unwrap());
            assert_eq!(sysctls.read(key).unwrap(), other);
            assert!(!sysctls.write(key, other).unwrap(), "it has the value already");
        })
        .unwrap();
}

#[test]
fn absent_setting_is_not_found_but_invalid_value_is_not() {
    let netns = Netns::create().unwrap();
    netns
        .run(|| {
            let sysctls = Sysctls::default();
            let absent = sysctls.write("net/ipv4/conf/eth9/rp_filter", "2").unwrap_err();
            assert!(absent.is_not_found());
            assert_eq!(absent.to_string(), "cannot write sysctl net/ipv4/conf/eth9/rp_filter");
            let bad = sysctls.write("net/ipv4/conf/lo/rp_filter", "loose").unwrap_err();
            assert!(!bad.is_not_found());
        })
        .unwrap();
}
