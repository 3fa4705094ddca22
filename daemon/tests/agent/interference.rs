//! Programs that configure what pods use are reported with the next step; nothing of them is changed.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use serde_json::Value;

use crate::follow_up::dual_stack_node;
use crate::node::{Agent, Node, name, wait_for};
use crate::pod::Pod;

fn write(node: &Node, below: &str, text: &str) {
    let path = node.path("host").join(below);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// The conditions with this word, as `subject: message`.
fn reported(node: &Node, reason: &str) -> Vec<String> {
    let body: Value = serde_json::from_str(&node.get("/readyz").1).unwrap_or_default();
    let all = body["conditions"].as_array().cloned().unwrap_or_default();
    let these = all.iter().filter(|condition| condition["reason"] == reason);
    these.map(|it| format!("{}: {}", it["subject"].as_str().unwrap(), it["message"].as_str().unwrap())).collect()
}

fn wait_reported(node: &Node, agent: &Agent, reason: &str, count: usize) -> Vec<String> {
    let enough = || reported(node, reason).len() == count;
    wait_for(&format!("{count} x {reason}"), enough, || format!("{}\n{}", node.get("/readyz").1, agent.log()));
    assert_eq!(node.get("/readyz").0, 200, "pods start nevertheless");
    reported(node, reason)
}

fn host_files(node: &Node) -> Vec<String> {
    let output = Command::new("find").arg(node.path("host")).args(["-type", "f"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn index(node: &Node) -> u32 {
    node.on(|socket| socket.index_of(&name("ens5")).unwrap())
}

#[test]
fn rejecting_firewall_is_reported_with_a_working_fix() {
    let node = dual_stack_node();
    let agent = node.ready_agent(&[]);
    let pod = Pod::add(&node, "a");
    pod.wait_connected();
    // Oracle Linux's own.
    node.sh("iptables-nft -A FORWARD -j REJECT --reject-with icmp-host-prohibited");
    let said = wait_reported(&node, &agent, "ForwardingRejected", 1);
    assert!(!pod.is_connected());
    let help = "iptables -I FORWARD -i vcn+ -j ACCEPT && iptables -I FORWARD -o vcn+ -j ACCEPT";
    assert!(said[0].starts_with("ip filter FORWARD: ") && said[0].contains(help), "{said:?}");
    node.sh(&help.replace("iptables", "iptables-nft"));
    wait_reported(&node, &agent, "ForwardingRejected", 0);
    pod.wait_connected();
    let cleared = agent.events("condition.cleared");
    assert_eq!(cleared.iter().filter(|line| line["reason"] == "ForwardingRejected").count(), 1, "{cleared:?}");

    // In a table that is not of iptables, its command would add the rule elsewhere.
    node.sh(
        "nft 'add table ip guard; add chain ip guard transit { type filter hook forward priority 10; policy drop; }'",
    );
    let said = wait_reported(&node, &agent, "ForwardingRejected", 1);
    let help = said[0].split('`').nth(1).unwrap();
    assert!(help.starts_with("nft insert rule ip guard transit iifname '\"vcn*\"' accept && "), "{help}");
    node.sh(help);
    wait_reported(&node, &agent, "ForwardingRejected", 0);
}

#[test]
fn interfering_network_managers_are_reported_and_nothing_written() {
    let node = dual_stack_node();
    let link = format!("run/systemd/netif/links/{}", index(&node));
    let device = format!("run/NetworkManager/devices/{}", index(&node));
    write(&node, "run/systemd/netif/state", "");
    write(&node, &link, "ADMIN_STATE=configured\nOPER_STATE=routable\n");
    write(&node, &device, "[device]\nmanaged=true\n");
    write(&node, "etc/systemd/networkd.conf", "[Network]\nManageForeignRoutes=no\n");
    let timer = node.path("host/etc/systemd/system/timers.target.wants/nm-cloud-setup.timer");
    fs::create_dir_all(timer.parent().unwrap()).unwrap();
    // Where it leads is the host's, and nothing is there for the agent.
    symlink("/usr/lib/systemd/system/nm-cloud-setup.timer", &timer).unwrap();
    let ocid = node.path("host/etc/systemd/system/multi-user.target.wants/ocid.service");
    fs::create_dir_all(ocid.parent().unwrap()).unwrap();
    symlink("/usr/lib/systemd/system/ocid.service", &ocid).unwrap();
    let before = host_files(&node);
    let agent = node.ready_agent(&[]);
    let said = wait_reported(&node, &agent, "NetworkManagerInterferes", 4);
    assert!(said[1].starts_with("systemd-networkd, ens5: systemd-networkd gives the link"), "{said:?}");
    assert!(said[0].contains("([Network] ManageForeignRoutingPolicyRules is on)"), "{said:?}");
    assert!(said[2].starts_with("NetworkManager, ens5: NetworkManager deletes our addresses"), "{said:?}");
    assert!(said[3].starts_with("nm-cloud-setup: ") && said[3].contains("systemctl disable --now"), "{said:?}");
    let said = wait_reported(&node, &agent, "ConflictingConfiguration", 1);
    assert!(said[0].starts_with("ocid: ocid configures every VNIC once a minute ([vnic] enabled is on)"), "{said:?}");
    assert_eq!(host_files(&node), before);
    write(&node, "etc/oci-utils.conf.d/10-vcn-native.conf", "[vnic]\nenabled = False\n");
    wait_reported(&node, &agent, "ConflictingConfiguration", 0);
    write(&node, &link, "ADMIN_STATE=unmanaged\n");
    write(&node, &device, "[device]\nmanaged=false\n");
    fs::remove_file(timer).unwrap();
    wait_reported(&node, &agent, "NetworkManagerInterferes", 1);
}

#[test]
fn networkd_settings_are_merged_from_site_and_admin_directories() {
    let node = dual_stack_node();
    write(&node, "run/systemd/netif/state", "");
    let agent = node.ready_agent(&[]);
    wait_reported(&node, &agent, "NetworkManagerInterferes", 1);
    let text = |removes: &str| {
        format!("[Network]\nManageForeignRoutingPolicyRules={removes}\nManageForeignRoutes={removes}\n")
    };
    let (site, admin) =
        ("usr/local/lib/systemd/networkd.conf.d/10-site.conf", "etc/systemd/networkd.conf.d/90-admin.conf");
    write(&node, site, &text("no"));
    wait_reported(&node, &agent, "NetworkManagerInterferes", 0);
    write(&node, admin, &text("yes"));
    wait_reported(&node, &agent, "NetworkManagerInterferes", 1);
    fs::remove_file(node.path("host").join(admin)).unwrap();
    wait_reported(&node, &agent, "NetworkManagerInterferes", 0);
    fs::remove_file(node.path("host").join(site)).unwrap();
    wait_reported(&node, &agent, "NetworkManagerInterferes", 1);
    // As systemd reads them: an empty value is the default, and a wrong word is skipped.
    for (value, count) in
        [("n", 0), ("y", 1), ("f", 0), ("T", 1), ("no", 0), ("", 1), ("no\nManageForeignRoutes=maybe", 0)]
    {
        write(&node, site, &text(value));
        wait_reported(&node, &agent, "NetworkManagerInterferes", count);
    }
    fs::remove_file(node.path("host").join(site)).unwrap();
    wait_reported(&node, &agent, "NetworkManagerInterferes", 1);
    let documented = "etc/systemd/networkd.conf.d/50-vcn-native.conf";
    let page = include_str!("../../../docs/operator.md");
    write(&node, documented, page.split("```").find(|block| block.contains(&format!("# /{documented}"))).unwrap());
    wait_reported(&node, &agent, "NetworkManagerInterferes", 0);
}

/// As `secondary_vnic_all_configure.sh -c` and `ocid` leave it on a virtual machine.
#[test]
fn foreign_configuration_of_a_vnic_is_reported() {
    let node = dual_stack_node();
    let agent = node.ready_agent(&[]);
    let pod = Pod::add(&node, "a");
    node.sh("ip addr add 10.0.33.7/24 dev ens5");
    node.sh("ip route add default via 10.0.33.1 dev ens5 table 10 && ip rule add from 10.0.33.7 lookup 10");
    // Perhaps one after the other: a reconcile may run between the two.
    let both = "ens5 (address 10.0.33.7/24, rule ";
    let all = || reported(&node, "ConflictingConfiguration").iter().any(|it| it.contains(both));
    wait_for("both conditions", all, || format!("{}\n{}", node.get("/readyz").1, agent.log()));
    let said = wait_reported(&node, &agent, "ConflictingConfiguration", 1);
    assert!(said[0].contains("secondary_vnic_all_configure.sh (`-d` undoes it)"), "{said:?}");
    pod.wait_connected();
    node.sh("ip addr del 10.0.33.7/24 dev ens5 && ip rule del from 10.0.33.7 lookup 10");
    wait_reported(&node, &agent, "ConflictingConfiguration", 0);
}

#[test]
fn pod_address_on_the_host_is_reported_with_its_link() {
    let node = dual_stack_node();
    let agent = node.ready_agent(&[]);
    let pod = Pod::add(&node, "a");
    for (family, prefix) in [("-4", 24), ("-6", 128)] {
        let address = format!("$(ip {family} route show table 999 | cut -d ' ' -f 1)/{prefix}");
        node.sh(&format!("ip addr add {address} dev ens3 noprefixroute"));
        let said = wait_reported(&node, &agent, "ConflictingConfiguration", 1);
        assert!(said[0].contains(&format!("/{prefix} on ens3, so the pod's packets")), "{said:?}");
        node.sh(&format!("ip addr del {address} dev ens3"));
        wait_reported(&node, &agent, "ConflictingConfiguration", 0);
    }
    pod.wait_connected();
}
