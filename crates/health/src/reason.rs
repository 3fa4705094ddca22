//! The reasons of the agent's conditions: the stable word, state and effect, and the next step. One table, from which
//! `why-not-ready`, Kubernetes Events, `kubectl oke-node` and docs/operator.md are made.

use serde::{Deserialize, Serialize};

macro_rules! reasons {
    ($($word:ident: $meaning:literal, $next:literal;)*) => {
        /// The stable words, in the order in which they are reported. Never renamed: alerts match on them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Reason {
            $(#[doc = $meaning] $word,)*
        }

        vcn::words!(Reason: $($word),*);

        impl Reason {
            /// The state and its effect, in one or two sentences.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$word => $meaning,)*
                }
            }

            /// What an operator does next.
            pub const fn next_step(self) -> &'static str {
                match self {
                    $(Self::$word => $next,)*
                }
            }
        }
    };
}

reasons! {
    Starting: "The agent has started and has not finished its first reconcile.",
        "Wait a few seconds. If it stays, read `kubectl logs` of the agent's pod; /healthz makes the kubelet restart it after five minutes.";
    MetadataUnavailable: "The instance metadata service does not answer. The agent uses the last good answer; without one, no pod can start.",
        "Run `curl -H 'Authorization: Bearer Oracle' http://169.254.169.254/opc/v2/vnics/` on the node; if it fails, check `ip route get 169.254.169.254`, the host's firewall, and whether the instance allows metadata version 2. On nodes without IPv4, set OCI_METADATA_BASE_URL to http://[fd00:c1::a9fe:a9fe]/opc/v2 (for all nodes: only if all have IPv6).";
    NativePodNetworkUnreadable: "The NativePodNetwork of this node cannot be read, has more than 256 VNICs or 4,096 pod addresses, or the API server has not answered for five minutes. The agent uses the last good copy.",
        "Compare the field in the message with `kubectl get nativepodnetwork -o yaml` or the file NPN_FILE; for Forbidden, repeat `kubectl apply --server-side -k` with your overlay (with the chart: `helm upgrade`). If there is no answer, run `kubectl get --raw /livez`, and on the node `curl -k https://ADDRESS:6443/livez` with the address of the API endpoint.";
    NativePodNetworkPending: "This instance has no NativePodNetwork yet, or OKE has not finished it: no pod can start. If the message names a VNIC, OKE's own CNI may still claim it, and the agent does not configure it.",
        "Run `kubectl get npn -o yaml` and read status.reason of the object with this instance's OCID in spec.id; a new node takes a minute or two. OKE usually waits for free addresses in the pod subnet, the limit of VNICs per instance, or a policy.";
    PrimaryLinkMissing: "The primary VNIC has no link on this host, so that no traffic of the primary VNIC can be configured.",
        "Compare the MAC addresses in `oke-node-agent status` with `ip link`. On bare metal, set BM_PORT_0 to the physical port (for all nodes).";
    LinkMissing: "A secondary VNIC has had no link on this host for DETACH_GRACE_SECONDS, or since before the agent started. Its addresses are not used.",
        "Compare its MAC address with `ip link`, look for a failed driver in `dmesg`, and on bare metal set BM_PORT_0 and BM_PORT_1; a newly attached VNIC takes seconds. If it stays, replace the node, or for a VNIC of a VnicAttachment delete its pods and detach it in OCI: the controller attaches it again.";
    VnicNotListed: "The metadata service does not list a VNIC that the NativePodNetwork names or whose link exists: it was detached, is being attached, or the list is incomplete. Its configuration stays; on bare metal, new pods get its addresses only while the node has no other VNIC for pods.",
        "Run `oci compute instance list-vnics --instance-id OCID`; if it lists the VNIC, wait for the metadata service. If the VNIC is gone and a VnicAttachment requests it, the controller attaches it again within five minutes; otherwise replace the node, because OKE does not attach it again.";
    VnicFamilyNotListed: "The metadata service no longer lists a VNIC's addresses of one family (for example IPv6), although the NativePodNetwork has pod addresses of it. The agent uses the last known values.",
        "Run `oci network vnic get --vnic-id OCID`: if the VNIC still has addresses of that family, wait for the metadata service. If they were removed, replace the node, because its pod addresses may be gone as well.";
    PodFamilyNotListed: "A VNIC for pods has IPv6 addresses, and the NativePodNetwork lists only IPv4 addresses of it. Pods at this VNIC get no IPv6 address.",
        "Compare the pod subnet's IPv6 prefix and the node pool's IP families with those of other nodes, and replace the node. If the cluster has IPv4 only, remove the VNIC's IPv6 addresses instead.";
    VnicUnreadable: "A field of a VNIC's entry in the metadata service is missing or invalid, or no address is listed (a VNIC in an OCI VLAN has none). The agent uses the rest of the entry and the last known values or, without id, MAC or address, does not configure the VNIC; other VNICs work.",
        "Compare the field that the message names with `curl -H 'Authorization: Bearer Oracle' http://169.254.169.254/opc/v2/vnics/` and the VNIC's subnet in the console. The entry of a VNIC that is being attached is complete within seconds.";
    HostAddressTaken: "Pods hold all IPv4 or all IPv6 addresses of a VNIC, so the host has none of its own there. Pods work; the host is not reachable at this VNIC in that family.",
        "Delete one of the pods that `oke-node-agent attachments` lists for the VNIC, or give the VNIC another IPv6 address. The host takes the free address.";
    ReturnPathMissing: "The node has more than eight VNICs, and packet marks for return paths exist for eight. A NodePort at the address of this VNIC does not answer if its pod is on another VNIC.",
        "Use NodePorts at the primary VNIC and at VNICs with table 1000 to 1006 (`oke-node-agent status`), or fewer VNICs.";
    RouterUnknown: "A VNIC has pod addresses, and no source names the router of their subnet. Pods do not get these addresses.",
        "Check the VNIC's subnet: a subnet with IPv6 addresses needs an IPv6 prefix. If the subnet was changed later, replace the node, or for a VNIC of a VnicAttachment delete its pods and detach it in OCI: the controller attaches it again.";
    AddressRefused: "A source lists an address of a VNIC that is not usable: link-local, loopback, multicast, broadcast, reserved by OCI, the router's, another VNIC's, or outside the subnet. No new pod and no host gets this address; a pod that has it keeps it, and all other addresses are used.",
        "Compare the addresses that the message names, as `kubectl get nativepodnetwork -o yaml` or the metadata service lists them, with the VNIC in the console. If `subnetCidrs` lacks a CIDR block of the subnet, replace the node, so that OKE writes the list again.";
    RouteRefused: "A route of a VnicAttachment or profile covers a network that the node or its pods reach another way: link-local addresses, the metadata service, the API server, Services or pods. The host does not use the route; the VNIC's other routes work.",
        "Replace the route that the message names with smaller ones, such as the subnets that are behind the VNIC. Longer routes of the main table always win, so the node's own subnet needs no exception.";
    ApplicationResourcesOnly: "Every VNIC in the NativePodNetwork is reserved for an application resource (`nicConfiguration.applicationResources`). No pod starts, because the plugin never reads from the API server which pods request one.",
        "Add a VNIC without applicationResources to `secondaryVnics` of the node pool and replace the node. To use application resources, set POD_NETWORK to `none` (for all nodes) and leave them to OKE's own CNI.";
    HostNetworkFailed: "The kernel refused part of the host's network. The agent retries with backoff.",
        "Check for a missing capability (NET_ADMIN) or a read-only SYSCTL_ROOT: the message has the command and the kernel's answer. `oke-node-agent plan` shows the remaining steps.";
    HostNetworkDrifted: "The host's network differs from the desired one, and HOST_NETWORKING is `report`: the agent changes nothing. Pods get no new address of a VNIC that differs.",
        "Run `oke-node-agent plan` to see what differs. To let the agent configure it, set HOST_NETWORKING to `configure`.";
    VnicAttachmentsUnreadable: "The VnicAttachments of this node cannot be read, or the API server has not answered for five minutes. The agent uses the last known ones.",
        "Read the API server's answer in the message: for 403, repeat `kubectl apply --server-side -k` with your overlay (with the chart: `helm upgrade`). An object that cannot be read was written by a later version: update the agent.";
    PodTableShared: "Another program has routes in table 999, the table of pod routes, and those to single addresses apply to every packet. If one of them rejects packets (blackhole, unreachable, prohibit), the agent removes our rule to protect the host: the node is not ready, and its pods are unreachable.",
        "Run `ip route show table 999` and `ip -6 route show table 999`: our routes have `proto 157`. Configure the program that added the others (a VPN, a script) to use another table below 999.";
    RoutingOverridden: "A rule or route of another program sends packets of pods, or of the host at a VNIC, another way than our rules do. The agent does not change it, and these packets are lost or leave through the wrong VNIC.",
        "Run the `ip route get` command of the message, and `ip rule` (`ip -6 rule`) for the order of all rules. Delete the rule that the message names, or let its program add it with a preference above 1795 (wg-quick: `Table = off` and rules of your own; netplan: `priority`).";
    MainTableUnreachable: "No policy rule leads to the main routing table. Packets of the host, and those of pods to 169.254.169.254, do not find their route.",
        "Restore the rule with `ip rule add pref 32766 lookup main` (`ip -6 rule add` for IPv6), and find the program that deleted it, such as a script that calls `ip rule flush`.";
    KernelLacksNft: "The kernel has no nf_tables for family inet. Pods on secondary VNICs cannot reach 169.254.169.254 (DNS, time, metadata).",
        "Load nf_tables and nft_masq with `modprobe`, or run a kernel that has them (5.15 or newer).";
    NftFailed: "Our nft table could not be written. The agent retries with backoff.",
        "Run `nft list ruleset` on the node to see which other program writes there; the message has the rule and the kernel's answer.";
    NoUsableAddress: "OKE has finished the NativePodNetwork, and no address in it can be used for a pod.",
        "Run `oke-node-agent status` for the reason of each VNIC, then `kubectl oke-node explain` with that reason.";
    AddressesExhausted: "Pods hold every address of this node, or no VNIC has a free address of each family: ADD fails with code 102 until one is free. The agent stays ready and STATUS succeeds; a cooling address counts as free.",
        "Delete pods, lower the kubelet's `maxPods`, or give the node pool more addresses per node (more VNICs, or a larger shape). `oke-node-agent pools` shows the counts, `oke-node-agent attachments` the holders.";
    StateFailed: "A state file of the agent could not be read or written. A damaged file is set aside and written again; a copy for the next start (NativePodNetwork, instance, VNICs) is retried every RESYNC_SECONDS.",
        "Run `df` and `mount` for the file that the message names. Free space if its file system is full, or mount it writable.";
    PodNetworkBroken: "The host's side of a running pod's network is incomplete, and the repair failed.",
        "Run `oke-node-agent attachments` to see what is missing. If the kernel keeps refusing it, delete the pod, so that its controller creates another.";
    PodLinkGone: "The host's link of a pod is gone, and the runtime has not removed the pod: another program deleted the link, or the runtime lost the pod. If the pod runs, it has no network.",
        "Run `kubectl get pod` for the pod in the message: if it runs, delete it, so that its controller creates another. If links go again, find the program with `ip monitor link` on the node.";
    ForwardingRejected: "A firewall of this host rejects forwarded packets, and with them the packets of pods.",
        "Accept forwarded packets in the chain and of the links that the message names, for example with `firewall-cmd --permanent --zone=trusted --add-interface=vcn+ && firewall-cmd --reload` (Oracle Linux images reject by default). Rules of `iptables-legacy` are not examined; Oracle Linux 8 and later use nf_tables.";
    RepairsUndone: "Another program reverts the agent's repairs. The agent repairs again, two or three times a second at most, and packets are lost in between.",
        "Run `ip monitor link address route rule` and `nft monitor` to see what changes together with the object in the message. Look for network managers, firewalls, a flapping link, and scripts on a timer (`systemctl list-timers`).";
    ChangesUnheard: "The system does not report changes of the kernel's network or of files. The agent polls with a backoff of at most 30 s, so that repairs are late.",
        "Raise `fs.inotify.max_user_instances` with `sysctl` if the message says `Too many open files`, or find the program that uses the instances up with `lsof +c0 | grep inotify`. The agent retries by itself.";
    PortUnavailable: "The agent cannot listen on LISTEN, usually because another program does. There are no metrics, and the kubelet restarts the agent because its probes fail; everything else works.",
        "Run `ss -ltnp` on the host to see which program has the port: stop it, or change LISTEN and the probes of manifests/base/daemonset.yaml. The agent takes the port as soon as it is free; `oke-node-agent status` works without it.";
    ChannelUnavailable: "The agent cannot listen on CHANNEL_PORT, or cannot publish its key: the controller shows this node as Unknown. Pods and the host's network do not need the channel.",
        "Run `ss -ltnp` on the host if the message names a port: stop the program that has it, or change CHANNEL_PORT. If the message has an answer of the API server, repeat `kubectl apply --server-side -k` with your overlay.";
    LimitRaised: "A limit of the kernel was nearly used up, and the rule of a health signal lets the agent raise it. The raised value lasts until the next boot.",
        "Make the value permanent in /etc/sysctl.d if the load is expected. `oke-node-agent health` shows what uses the limit up.";
    SettingNotRestored: "A value or file that a NodePolicy set is not restored, and no policy names it any more. The agent retries values within an hour at most, and a reboot restores them as well; files stay.",
        "Read the message: mount the folder that it names (for a file, chart value `hostFiles` or `hostCode`), or set the earlier value on the node with `sysctl`, `ip link` or `ethtool`. If it names addresses or routes of a link, reboot the node.";
    RepairWithoutEffect: "The agent raised a limit of the kernel, and the raised limit is nearly used up too. The agent restores the old value once usage is below half of it, and does not raise the limit again until then.",
        "Find the pod that uses the limit up: `oke-node-agent health` shows the problem.";
    NetworkManagerInterferes: "systemd-networkd or NetworkManager removes our objects or configures a VNIC's link. The agent repairs them, and packets are lost in between.",
        "Put the files of docs/operator.md, section Keep network managers away, on the host and reload that program. For new nodes, let the node pool's cloud-init write them.";
    ConflictingConfiguration: "Another program (ocid, a script, nm-cloud-setup) also configures a VNIC, or gave the host an address that a pod has. Or it added a default route through another device, which precedes the primary VNIC's own route.",
        "Run `ip address del ADDRESS dev LINK` for an address in the message, remove a route in the configuration of its device, and disable that program for secondary VNICs. For ocid, set `enabled = false` under `[vnic]` in /etc/oci-utils.conf.d/ and run `systemctl restart ocid`.";
    AttachmentLeftOver: "A pod is gone, and part of its network could not be removed. Its addresses stay in use until the removal succeeds; the agent retries.",
        "Wait ten minutes for the agent's retries. If it lasts, delete the link that the message names with `ip link delete NAME` on the node and read `dmesg`; if that fails, drain, reboot and uncordon the node.";
    LinkNotReturned: "A pod that had a VNIC for itself was deleted, and the VNIC's link is not back on the host: the pod moved it to another network namespace. No other pod gets the VNIC until that namespace ends and the kernel returns the link; then the condition clears.",
        "Run `lsns -t net -o NS,PID,COMMAND` on the node, find the link with the VNIC's MAC address (`oke-node-agent status`) with `nsenter -t PID -n ip -d link`, and delete that pod or end that process. If none is found, reboot the node, or detach the VNIC: `kubectl annotate vnica NAME oke.oraclecloud.com/force-detach=true` and `kubectl delete vnica NAME`.";
    LeftInPlace: "Another pod network owns this node, or its owner is unknown, and objects that this agent created for pods are still there.",
        "Run `oke-node-agent plan` to see them; if another pod network owns the node, drain, reboot and uncordon it (to remove everything: docs/uninstall.md, section Uninstall one node only). If the owner is unknown, see MetadataUnavailable, or set POD_NETWORK to `vcn-native` or `none` (for all nodes).";
    InstallerFailed: "The CNI binaries or the CNI configuration could not be installed.",
        "Check the file that the message names. Mount CNI_BIN_DIR and CNI_CONF_DIR from the host, writable.";
    RuntimeConfigurationBlocked: "A file that sorts before 05-vcn-native.conflist, or a file in the folder vcn-native, is not valid, or is a link that the agent's container cannot follow. containerd then refuses all configurations, and no pod can start; CRI-O skips the file, and the node stays ready, unless the file is in that folder.",
        "Correct the file that the message names, or move it out of the directory; the agent changes only its own files. If the file is a symbolic link to another directory, replace the link with a copy of its target.";
    RuntimeConfigurationPreceded: "Another CNI configuration sorts before 05-vcn-native.conflist, and new pods use it; or before 00-vnic-attach.conflist, and pods start without the extra interfaces that they request. The node is not ready if that configuration gives pods no network: its plugins make no interface (such as istio-cni), or with containerd a plugin's binary is missing in CNI_BIN_DIR.",
        "Remove the file that the message names if its network is no longer used, or rename it so that it sorts last (99-loopback.conf). If the other network is intended on all nodes, set POD_NETWORK to `none`; the file of Multus may sort first.";
    RuntimeConfigurationLeft: "Another pod network may own this node, and 05-vcn-native.conflist is still there. The agent removes it once the other pod network is certain, no pod uses our network, and another configuration exists (or POD_NETWORK is `none`).",
        "Read in the message what is missing: drain, reboot and uncordon the node, let the other network write its configuration, or set POD_NETWORK to `none` or `vcn-native` (for all nodes). To remove everything from one node, see docs/uninstall.md, section Uninstall one node only.";
    RuntimeConfigurationMissing: "This node is left to OKE's own CNI, and CNI_CONF_DIR has no CNI configuration that gives pods a network: no pod can start. Or the node is left to another pod network, and the runtime uses a file whose plugins make no interface (istio-cni or linkerd-cni alone): pods get no network.",
        "Remove the file that the message names, or rename it to sort last; without such a file, `kubectl get pods -n kube-system -o wide` must list a pod of vcn-native-ip-cni on this node. If OKE's CNI is not intended, set CNI_TAKEOVER by overlays/oke-vcn-native (for all nodes, docs/install.md); if the configuration is elsewhere, set CNI_CONF_DIR and mount it.";
    PluginUnanswered: "A plugin of CNI_CHAIN does not say which CNI versions it supports. Until it answers, the agent leaves it out of the chain, unless it was already there; pods that start meanwhile lack what it configures (host ports, for example).",
        "Run `CNI_COMMAND=VERSION /opt/cni/bin/portmap` on the node: it must answer within 2 s and, as the agent's container has no C library and no shell, be a static binary. Then restart the pods that lack something, or, if no node needs it, remove the plugin from CNI_CHAIN (for all nodes).";
    PluginMissing: "A plugin that another program added to our CNI configuration (istio-cni, linkerd-cni) has no binary in CNI_BIN_DIR: no pod can start.",
        "Restart the pod of its DaemonSet on this node, so that it writes the binary. If it was uninstalled, remove its entry from 05-vcn-native.conflist; the agent changes only its own entries.";
    ConfigurationInvalid: "The configuration file was changed and is invalid, or it is gone. The agent uses the last valid one.",
        "Correct each problem that the message lists in the ConfigMap oke-node-agent; docs/upgrade.md, step 2, checks a correction on your machine. If the file is gone, restore it, or restart the agent to use the defaults.";
}

impl Reason {
    /// Whether the agent stays ready although new pods cannot start: the node works, and is full.
    pub const fn leaves_ready(self) -> bool {
        matches!(self, Self::AddressesExhausted)
    }

    /// Whether packets of many pods are lost while it lasts: the node's network is not ready then, although new pods start.
    pub const fn loses_traffic(self) -> bool {
        matches!(self, Self::ForwardingRejected | Self::RepairsUndone)
    }

    /// Whether a retry within seconds may clear it although no event reports a change.
    pub const fn is_retried_soon(self) -> bool {
        matches!(
            self,
            Self::ChangesUnheard
                | Self::HostNetworkFailed
                | Self::NftFailed
                | Self::StateFailed
                | Self::InstallerFailed
                | Self::PluginUnanswered
                | Self::PodNetworkBroken
                | Self::AttachmentLeftOver
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_at_most_two_sentences() {
        for reason in Reason::ALL {
            for text in [reason.meaning(), reason.next_step()] {
                assert!(text.ends_with('.') && text.matches(". ").count() <= 1, "{reason}: {text}");
            }
        }
    }
}
