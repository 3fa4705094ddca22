//! What each stable word means and what to do about it: one list, for `why-not-ready` and for docs/operator.md.

use crate::report::condition::Reason;

macro_rules! advice {
    ($($word:ident: $meaning:literal, $do:literal;)*) => {
        impl Reason {
            /// Every word there is.
            pub const ALL: &'static [Self] = &[$(Self::$word),*];

            /// The word.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$word => stringify!($word),)*
                }
            }

            /// When it is said.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$word => $meaning,)*
                }
            }

            /// What a person does about it.
            #[must_use]
            pub const fn to_do(self) -> &'static str {
                match self {
                    $(Self::$word => $do,)*
                }
            }
        }
    };
}

advice! {
    Starting: "The agent has started and not yet looked at everything.",
        "Wait some seconds. If it stays: `kubectl logs` of the agent's pod; /healthz makes the kubelet restart it after 5 minutes.";
    MetadataUnavailable: "The instance metadata service does not answer. With a last good answer the node goes on with that, else no pod can start.",
        "On the node: `curl -H 'Authorization: Bearer Oracle' http://169.254.169.254/opc/v2/vnics/`. If that fails, look at the route to 169.254.169.254 (`ip route get`), at firewall rules on the host, and at whether the instance allows metadata version 2. A node without IPv4 has the service at http://[fd00:c1::a9fe:a9fe]/opc/v2 only: set OCI_METADATA_BASE_URL to that.";
    NativePodNetworkUnreadable: "The NativePodNetwork of this node is there and cannot be read, or it has more than 256 VNICs or 4,096 addresses for pods, or the API server has not answered for five minutes. Until it can be read, what was known before is used.",
        "The message has the API server's words or the field: compare it with `kubectl get nativepodnetwork -o yaml` or, where NPN_FILE is set, with that file. Forbidden: apply the ClusterRole of manifests/base/daemonset.yaml. No answer: from the node, `curl -k https://$KUBERNETES_SERVICE_HOST/livez`.";
    NativePodNetworkPending: "There is no NativePodNetwork for this instance yet, or OKE has not finished it: nobody has given this node pod addresses. About a VNIC, on a node that is not ours: it may be for pods of OKE's own CNI, which names those only when it has finished, and is left as it is found.",
        "`kubectl get nativepodnetwork -o yaml`: status.reason says what OKE waits for, most often free addresses in the pod subnet, a limit of VNICs per instance, or a missing policy. A new node takes a minute or two.";
    PrimaryLinkMissing: "The primary VNIC has no link on this host, so nothing that goes by it can be set up.",
        "Compare the MACs of `oke-node-agent status` with `ip link`. On bare metal set BM_PORT_0 to the physical port.";
    LinkMissing: "The metadata service has listed a secondary VNIC without a link on this host for DETACH_GRACE_SECONDS, or since before the agent started; its addresses are not used.",
        "Compare its MAC with `ip link`. A VNIC just attached takes seconds; else detach and attach it again, or look for a driver that failed in `dmesg`. On bare metal set BM_PORT_0 and BM_PORT_1.";
    VnicNotListed: "The metadata service does not list a VNIC that the NativePodNetwork names, or whose device is still here: it was detached, is still being attached, or the list is short. What is set up for it stays. On bare metal, where no device goes with a VNIC, the router of its subnet is asked on its VLAN link; as long as it does not answer, no new pod gets the VNIC's addresses.",
        "In the console or with `oci compute instance list-vnics`: if the VNIC is gone, replace the node; OKE does not attach it again.";
    VnicFamilyNotListed: "The metadata service lists a VNIC without addresses of a family (IPv6, say) that it had, and that the NativePodNetwork has pods' addresses of. What was known of that family is used.",
        "In the console or with `oci network vnic get`: if the VNIC has addresses of that family, the metadata service is late or wrong, and the node goes on meanwhile; if somebody removed them, those of pods may be gone as well: replace the node.";
    VnicUnreadable: "The metadata service lists a VNIC, and a field of its entry is missing or makes no sense. What was known of the VNIC before is used; for one that was never known nothing is set up. The others are served.",
        "The message names the field. A VNIC that is being attached is whole within seconds; else compare `curl -H 'Authorization: Bearer Oracle' http://169.254.169.254/opc/v2/vnics/` with the VNIC's subnet in the console.";
    HostAddressTaken: "Pods hold every address of a family that could be the host's own at a VNIC: the host gets none of it there. Pods are served; the node does not answer at that VNIC in that family, and sends nothing of its own by it.",
        "`oke-node-agent attachments` shows who holds what. Give the VNIC another IPv6 address, or delete the pod that holds the VNIC's own; the host takes the first that is free.";
    ReturnPathMissing: "There are more VNICs than marks: a NodePort at this VNIC's own address does not answer where its pod is on another VNIC.",
        "Use NodePorts at the addresses of the first eight VNICs, or have fewer VNICs.";
    RouterUnknown: "A VNIC has addresses and nobody says by which router they leave.",
        "Look at the VNIC's subnet: one with IPv6 addresses must have an IPv6 prefix. Attach the VNIC again if it was changed since.";
    AddressRefused: "The NativePodNetwork or the metadata service names an address of a VNIC that is no usable host address of its subnet: link-local (169.254.169.254, say), loopback, multicast or broadcast, reserved by OCI, the subnet's router, another VNIC's own address, or outside the subnet. No new pod and no host gets it; all others are served. A pod that has it already keeps it until it goes.",
        "The message names the addresses and the document. Compare `kubectl get nativepodnetwork -o yaml` and `curl -H 'Authorization: Bearer Oracle' http://169.254.169.254/opc/v2/vnics/` with the VNIC in the console. Correct what OKE did not write. Where `subnetCidrs` lacks a CIDR block of the subnet, replace the node, so that OKE writes it again.";
    ApplicationResourcesOnly: "Every VNIC in the NativePodNetwork of this node is kept for an application resource (`nicConfiguration.applicationResources`). Such addresses are for pods that request the resource. Only the API server knows which pods do, and a pod's start never waits for it: no pod starts here.",
        "Add a VNIC without applicationResources to `secondaryVnics` of the node pool and replace the node. To use application resources, leave the node to OKE's own CNI: set POD_NETWORK to `none`.";
    HostNetworkFailed: "The kernel refused part of the host's network.",
        "The message names the command and the kernel's answer. `oke-node-agent plan` shows what is still to be done; it is tried again with growing pauses. Missing capabilities (NET_ADMIN) and a read-only SYSCTL_ROOT are the usual causes.";
    HostNetworkDrifted: "The host's network differs from what is desired, and HOST_NETWORKING is `report`: the agent changes nothing. Pods get no new addresses of a VNIC that differs.",
        "`oke-node-agent plan` shows what differs. To have the agent configure it, set HOST_NETWORKING to `configure`.";
    VnicAttachmentsUnreadable: "The VnicAttachments of this node are there and cannot be read, or the API server has not answered for five minutes. What was known before is used.",
        "The message has the API server's words. Forbidden: apply the ClusterRole of manifests/base/daemonset.yaml. An object that cannot be read was written by a later version: update the agent.";
    PodTableShared: "Somebody else has routes in table 999, which leads to pods and is asked for every packet of the host. Routes to more than one address are passed over; one to a single address holds for all packets. Where one refuses packets to more than one address (blackhole, unreachable, prohibit), which cannot be passed over, no rule leads to that table, so that the host keeps its network: this node's pods cannot be reached, and the node is not ready.",
        "`ip route show table 999` and `ip -6 route show table 999`: ours have `proto 157`. Give the program that made the others (a VPN, a script) another table; ours are 999, and 1000 and above.";
    KernelLacksNft: "The kernel has no nf_tables for family inet: pods cannot reach 169.254.169.254 (DNS, time, metadata) from secondary VNICs.",
        "Load nf_tables and nft_masq (`modprobe`), or run a kernel that has them (5.15 or newer).";
    NftFailed: "Our nft table could not be written.",
        "The message names the rule and the kernel's answer; `nft list ruleset` shows who else writes there.";
    NoUsableAddress: "There is no address that a pod could use, although OKE has finished.",
        "`oke-node-agent status` shows which VNIC is not in order and why: see its reason in this list.";
    AddressesExhausted: "Pods hold every address of this node, or no VNIC has a free one of each family that pods get: ADD answers 102 until one is free. One that cools down is free. The agent stays ready and STATUS succeeds; `why-not-ready`, the metric and the Event say that no new pod can start.",
        "`oke-node-agent pools` shows the counts, `oke-node-agent attachments` the holders. Delete pods, lower the kubelet's `maxPods`, or give the node pool more addresses per node (more VNICs, or a larger shape).";
    StateFailed: "A file of ours could not be read or written.",
        "The message names the file. Look for a full or read-only file system (`df`, `mount`). A damaged file is set aside and made anew; a copy that the next agent would start by (native-pod-network, instance and VNICs) is tried again every RESYNC_SECONDS.";
    PodNetworkBroken: "A running pod lacks something on the host that could not be put back.",
        "`oke-node-agent attachments` says what it lacks. If the kernel refuses it for good, delete the pod; its controller makes another.";
    ForwardingRejected: "A firewall of this host stops what is forwarded, and so pods' packets.",
        "The message names the chain. Let the firewall accept what is forwarded from and to the links named (`firewall-cmd --permanent --zone=trusted --add-interface=vcn+`, or an accept rule before its reject rule); Oracle Linux images reject by default. Rules of `iptables-legacy` are not examined; Oracle Linux 8 and later use nf_tables.";
    RepairsUndone: "Somebody undoes what is repaired, again and again. It is put back all the same, two or three times a second at most; packets are lost meanwhile.",
        "The message says what. `ip monitor link address route rule` and `nft monitor` show when it goes and what goes with it; look for network managers, firewalls and scripts that run on a timer (`systemctl list-timers`), and for a link that flaps.";
    ChangesUnheard: "The system does not tell of changes to the kernel's network or to files. They are found by looking, at growing pauses of 30 s at most; what somebody breaks is repaired as late.",
        "The message has the system's answer. Too many open files: all that root runs on the host shares `fs.inotify.max_user_instances`; raise it (`sysctl`), or find who uses them up (`lsof +c0 | grep inotify`). It is tried again by itself.";
    PortUnavailable: "The agent cannot listen on LISTEN, usually because another program does. There are no metrics, and the kubelet restarts the agent because its probes fail; everything else works.",
        "`ss -ltnp` on the host shows who has the port. Stop that program, or choose another LISTEN and the same port in the probes of manifests/base/daemonset.yaml. It is taken as soon as it is free; until then `oke-node-agent status` asks by the socket, as always.";
    NetworkManagerInterferes: "systemd-networkd or NetworkManager removes what is ours, or configures a VNIC's link. It is put back, but packets are lost meanwhile.",
        "HOST_DROP_INS=allow with the host's root at HOST_ROOT writes what tells it to leave ours alone; else do what the message says by hand, and restart that program.";
    ConflictingConfiguration: "Somebody else (ocid, a script, nm-cloud-setup) configures a VNIC, too, or gave the host an address of a pod's.",
        "Remove the address that the message names; disable the program that it names for secondary VNICs; for ocid, `enabled = false` under `[vnic]` in /etc/oci-utils.conf.d/.";
    DropInFailed: "A drop-in for a network manager could not be written, although HOST_DROP_INS allows it, or not be removed, although it no longer does.",
        "HOST_ROOT must be the host's root, mounted writable where the message says; or remove the file by hand.";
    AttachmentLeftOver: "A pod is gone, and not all of its network could be removed.",
        "The message names what stays and the kernel's answer; it is tried again. Its addresses stay taken until then.";
    LeftInPlace: "The pod network of this node is somebody else's now, or nobody can tell whose, and what ours made before is still there.",
        "The message says which. `oke-node-agent plan` shows what is there. Where it cannot be told whose it is, mend what MetadataUnavailable names, or set POD_NETWORK. Where it is somebody else's: drain and reboot the node; our CNI configuration goes with the last pod of ours, the rest with the boot. Or run `oke-cni-installer uninstall` on it.";
    InstallerFailed: "The CNI binaries or configuration could not be put in place.",
        "The message names the file. The directories CNI_BIN_DIR and CNI_CONF_DIR must be mounted from the host and writable.";
    RuntimeConfigurationBlocked: "A file that the container runtime reads before our CNI configuration is no configuration, or a link that leads to nothing that can be seen from the agent's container: containerd then refuses all of them, and no pod can start. CRI-O passes it over, so that where the agent runs by CRI-O the node stays ready.",
        "Mend the file that the message names, or move it out of the directory. It is not ours, so nothing is done about it. A link out of the directory that is as it should be: put the file itself there.";
    RuntimeConfigurationPreceded: "Another CNI configuration sorts before ours, and the container runtime takes that one: pods that start get nothing of ours. Where it is a network's, they get that one. The node is not ready where they get none: it has no plugin but loopback, or a plugin of it has no binary in CNI_BIN_DIR (CRI-O passes the latter over, and the node stays ready).",
        "If it was left behind by a network that is no more, remove the file that the message names. One of loopback alone can be removed, or be given a name behind ours (99-loopback.conf): runtimes have theirs made without it. If another network is meant, set POD_NETWORK to `none`. If it is to call ours (as Multus does), its first plugin is not the one that gives pods their network.";
    RuntimeConfigurationLeft: "The pod network of this node is not ours, and our CNI configuration is still there. It goes by itself when it is sure that another pod network is meant, no pod lives by ours, and another configuration is there (or POD_NETWORK is `none`). After a boot no pod starts by it.",
        "The message says what it waits for. Pods of ours: drain the node and reboot it. Another configuration: let that network's DaemonSet put its own there. What is not sure: set POD_NETWORK to `none`, or to `vcn-native` where the node is ours after all; where OKE's file and DaemonSet are there by mistake, remove them. Or `oke-cni-installer uninstall`, which takes all of ours off.";
    RuntimeConfigurationMissing: "This node is left to OKE's own CNI, and the runtime's directory holds no CNI configuration that gives pods a network: no pod can start.",
        "`kubectl get pods -n kube-system -o wide` shows whether the DaemonSet vcn-native-ip-cni has a pod on this node; its pod writes the configuration within a minute. Where OKE's CNI is not meant, delete that DaemonSet, or set CNI_TAKEOVER to `true`; where the configuration is elsewhere, set CNI_CONF_DIR.";
    PluginUnanswered: "A plugin of CNI_CHAIN is on the node and does not say which CNI versions it speaks. It is asked again; until it answers it is left out of the chain, and pods that start meanwhile never get what it does (host ports, say). One that is in the chain already stays there: if it hangs, so does every pod's start.",
        "The message has what it did. Run it on the node: `CNI_COMMAND=VERSION /opt/cni/bin/portmap` must answer within 2 s. In the agent's container there is no C library and no shell: there only a static binary can be asked. Start pods that lack something anew, or take the plugin out of CNI_CHAIN.";
    PluginMissing: "A plugin that others put into our CNI configuration (istio-cni, linkerd-cni, ...) has no binary in CNI_BIN_DIR: the runtime starts every plugin of the list, so that no pod can start.",
        "Put the binary back (restart the pod of its DaemonSet on this node), or, where it was uninstalled for good, take its entry out of 05-vcn-native.conflist. It is not ours, so nothing is done about it.";
    ConfigurationInvalid: "The configuration file was changed and is wrong, or it is gone; the last good one is still used.",
        "The message says every line. `oke-node-agent config --check FILE` tells before it is rolled out. One that is gone: put it back (the ConfigMap, say); to take back all that it said, leave it empty or restart the agent.";
    RestartNeeded: "A key that is taken at the start was changed; everything else was taken over.",
        "Restart the agent: `kubectl delete pod` of it, or roll the DaemonSet. Pods do not notice.";
}

/// docs/operator.md's table.
#[must_use]
pub fn markdown() -> String {
    let row = |reason: &Reason| format!("| `{reason}` | {} | {} |\n", reason.meaning(), reason.to_do());
    format!("| word | when | what to do |\n|---|---|---|\n{}", Reason::ALL.iter().map(row).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a route to the IPv4 address nothing else would tell that there is a key.
    #[test]
    fn who_gets_no_metadata_is_told_the_key_and_the_ipv6_address_and_that_is_an_address_that_can_be_set() {
        let advice = Reason::MetadataUnavailable.to_do();
        let url = format!("http://[{}]/opc/v2", vcn::METADATA_ADDRESS_V6);
        assert!(advice.contains("OCI_METADATA_BASE_URL") && advice.contains(&url), "{advice}");
        assert!(imds::Imds::check(&url).is_ok());
    }
}
