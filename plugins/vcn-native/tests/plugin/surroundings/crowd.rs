//! Objects of other programs: each as similar to our own as it can be without our mark.

use crate::node::Node;

/// Commands as an operator would type them. The first pods get 10.0.0.8 and 2001:db8::8 on ens5, whose table is 1001.
const THINGS: &str = r"
# Links: a bridge with a port, names like our links', one even in our form.
link add br0 type bridge
link add vc-port type veth peer name vc-peer
link add vcn0 type veth peer name vcn1
link add vcn0123456789ab type veth peer name vcnx
link add vxlan7 type vxlan id 7 dstport 4789 dev vcn0
link set vc-port master br0
link set vcn0 alias another/pod
link set vcn0123456789ab mtu 1400 address 02:00:00:00:aa:aa txqueuelen 77
link set br0 up
link set vc-port up
link set vc-peer up
link set vcn0 up
link set vcn1 up
link set vcn0123456789ab up
link set vcnx up
# Addresses
addr add 192.0.2.1/24 dev br0 label br0:old
addr add 192.0.2.2/24 dev br0
addr add 2001:db8:99::1/64 dev br0 nodad
addr add 169.254.1.1/32 dev vcn0
addr add 10.0.0.3/24 dev ens5
addr add 169.254.0.2/32 dev ens6 scope link
# Routes: in main, in the tables of the pods and of the VNICs, in tables close to those, of all types.
route add default via 192.0.2.254 dev br0 metric 4096
route add 10.0.0.9 dev vcn0 proto static
route add 10.77.0.0/16 dev vcn0123456789ab table 999 proto static
route add 10.0.0.0/24 dev vcn0 table 999 proto 99
route add throw 10.78.0.0/16 table 999
route add 10.0.0.8 dev vcn0 table 998 proto 157
route add 10.0.0.8 dev vcn0 table 1000 proto static
route add 10.0.0.8 dev vcn0 table 1006
route add 10.79.0.0/16 via 10.0.0.1 dev ens5 table 1001 onlink proto bird
route add unreachable 10.80.0.0/16 table 1002 metric 7
route add blackhole 10.81.0.0/16
nexthop add id 5 dev vcn0
route add 10.82.0.0/16 nhid 5
route add 10.83.0.0/16 nexthop dev vcn0 weight 1 nexthop dev br0 weight 2
-6 route add default via 2001:db8:99::fe dev br0 metric 4096
-6 route add 2001:db8:7::/64 dev vcn0 table 999 proto static
-6 route add 2001:db8::8/128 dev vcn0 table 998 proto 99
-6 route add unreachable 2001:db8:8::/48 table 1001
# Rules: at our priorities and next to them, one like a pod's but for its protocol.
rule add pref 511 from all iif vcn0 lookup 998
rule add pref 512 from all fwmark 0x7/0xff lookup 998 protocol static
rule add pref 1000 to 169.254.169.254 lookup main protocol static
rule add pref 1024 fwmark 0x80000000/0x80000000 lookup main
rule add pref 1536 from 10.0.0.8 lookup 1001 protocol static
rule add pref 1536 from 10.0.0.8 lookup 1002
rule add pref 1536 from 10.99.0.0/16 lookup 1001 protocol bird
rule add pref 1537 from 10.0.0.3 prohibit
-6 rule add pref 512 to 2001:db8:7::/64 lookup 998
-6 rule add pref 1536 from 2001:db8::8 lookup 1001 protocol static
-6 rule add pref 1536 from 2001:db8:9::/64 blackhole
# Neighbours
neigh add 10.0.0.77 lladdr 02:00:00:00:00:77 dev ens5 nud permanent
neigh add 10.0.0.78 lladdr 02:00:00:00:00:78 dev ens5 nud noarp proto 99
neigh add 192.0.2.9 lladdr 02:00:00:00:00:79 dev br0 nud permanent
-6 neigh add fe80::1 lladdr 02:00:00:00:00:80 dev vcn0 nud permanent
neigh add proxy 10.0.0.250 dev ens5
neigh add proxy 10.0.0.8 dev ens6
neigh add proxy 10.0.0.8 dev br0 proto 99
-6 neigh add proxy 2001:db8::fa dev ens5
-6 neigh add proxy 2001:db8::8 dev br0
";

/// Tables like our own, for nft.
const TABLES: &str = r"
table inet oke-other {
    chain forward {
        type filter hook forward priority -150; policy accept;
        ct mark 0x7 counter accept
    }
    chain post {
        type nat hook postrouting priority srcnat;
        ip saddr 10.0.0.8 ip daddr 169.254.169.254 counter masquerade
    }
    set pods {
        type ipv4_addr; flags interval
        elements = { 10.0.0.0/24, 10.77.0.1 }
    }
}
table ip raw {
    chain prerouting {
        type filter hook prerouting priority raw;
        iifname vcn0 notrack
    }
}
table ip6 mangle {
    chain out {
        type route hook output priority mangle;
        oifname vcn0 meta mark set 0x80000001
    }
}
";

/// The same for programs of their own.
const MORE: &str = r"
set -e
conntrack -I -p tcp -s 10.0.0.77 -d 10.0.0.1 --sport 5 --dport 80 --state ESTABLISHED --timeout 36000 --mark 0x80000007
conntrack -I -p udp -s 192.0.2.9 -d 10.0.0.3 --sport 53 --dport 53 --timeout 36000 --mark 1
conntrack -I -p tcp -s 10.0.0.250 -d 10.0.0.88 --sport 7 --dport 7 --state SYN_SENT --timeout 36000
conntrack -I -p udp -s 2001:db8::fa -d 2001:db8::1 --sport 9 --dport 9 --timeout 36000 --mark 0x10000000
tc qdisc add dev vcn0 root handle 7: htb default 1
tc class add dev vcn0 parent 7: classid 7:1 htb rate 10mbit
tc qdisc add dev ens6 root tbf rate 1gbit burst 1mb latency 5ms
bridge fdb add 02:00:00:00:00:99 dev vc-port master static
for setting in ipv4.conf.all.rp_filter=1 ipv4.conf.vcn0.proxy_arp=1 ipv4.conf.ens5.log_martians=1 \
    ipv4.conf.default.arp_announce=2 ipv6.conf.vcn0.accept_ra=2 ipv6.conf.ens6.hop_limit=63 \
    ipv6.conf.default.use_tempaddr=2 ipv4.neigh.vcn0.gc_stale_time=61 ipv6.neigh.vcn0.proxy_qlen=5; do
    name=${setting%=*}
    echo ${setting#*=} > /proc/sys/net/$(echo $name | tr . /)
done
";

/// Crowds a node's host.
pub(crate) fn crowd(node: &Node) {
    // The kernel's own link-local addresses come when they come; these links have none.
    node.sh("echo 1 >/proc/sys/net/ipv6/conf/default/addr_gen_mode");
    for thing in THINGS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        node.sh(&format!("ip {thing}"));
    }
    node.sh("echo 0 >/proc/sys/net/ipv6/conf/default/addr_gen_mode");
    tables(node);
    node.sh(&format!("exec bash -c '{MORE}'"));
}

/// The nft tables of the crowd alone.
pub(crate) fn tables(node: &Node) {
    node.sh(&format!("nft '{TABLES}'"));
}
