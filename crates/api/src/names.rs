//! Names that users, the controller and the agent agree on: the group, the annotation, labels, the finalizer, the tags.

/// The API group of our resources.
pub const GROUP: &str = "oke.oraclecloud.com";
/// The version of our resources.
pub const VERSION: &str = "v1alpha1";

/// On a Node: the VnicProfiles it requests, by name ([`crate::requested_profiles`]). Who may write it is decided by a
/// ValidatingAdmissionPolicy.
pub const VNICS_ANNOTATION: &str = "oke.oraclecloud.com/vnics";

/// On a Node: the OCID of its OKE node pool. The cloud controller manager writes it, and the node's kubelet may.
pub const NODE_POOL_ANNOTATION: &str = "oci.oraclecloud.com/node-pool-id";

/// On a VnicAttachment, with the value `true`: the VNIC, or its addresses, are taken away although pods use them.
pub const FORCE_DETACH_ANNOTATION: &str = "oke.oraclecloud.com/force-detach";

/// On a VnicAttachment: keeps the object until the cloud has taken the VNIC away.
pub const VNIC_FINALIZER: &str = "oke.oraclecloud.com/vnic";

/// On a VnicProfile: keeps the object until what was made from it is gone.
pub const PROFILE_FINALIZER: &str = "oke.oraclecloud.com/profile";

/// On a NodePolicy: keeps the object until no agent that answers has it.
pub const POLICY_FINALIZER: &str = "oke.oraclecloud.com/node-policy";

/// On a NodeTask: keeps the object until what it left on nodes is undone: our cordon, a Pod, a capture.
pub const TASK_FINALIZER: &str = "oke.oraclecloud.com/node-task";

/// On a NodePolicy or NodeTask: the user that created it. A ValidatingAdmissionPolicy accepts no other user's name.
pub const CREATED_BY_ANNOTATION: &str = "oke.oraclecloud.com/created-by";

/// On a VnicAttachment: the VnicProfile that it was made from. Its value is the profile's name, hence the names' length.
pub const PROFILE_LABEL: &str = "oke.oraclecloud.com/profile";

/// The one field manager of the controller's writes. Users' own objects contain it twice.
pub const FIELD_MANAGER: &str = "oke-node-controller";

/// Free-form tags that begin so are the controller's: users' tags must not.
pub const TAG_PREFIX: &str = "oke-node-manager/";
/// On a VNIC: the cluster it was made for. A VNIC with this and a matching [`UID_TAG`] is managed by the controller.
pub const CLUSTER_TAG: &str = "oke-node-manager/cluster";
/// On a VNIC: the `metadata.uid` of its VnicAttachment.
pub const UID_TAG: &str = "oke-node-manager/uid";
/// On a VNIC: the name of its VnicAttachment, for people.
pub const NAME_TAG: &str = "oke-node-manager/name";
/// On a released VNIC: the `metadata.uid` of its former VnicAttachment. The controller no longer manages it.
pub const RELEASED_TAG: &str = "oke-node-manager/released";

/// The most bytes of a Node's name that is written into a VnicAttachment's status: a Linux host name has no more.
pub const NODE_NAME_MAX: usize = 64;

/// On an agent's Pod, written by that agent: the port and the key of its channel, as JSON.
pub const AGENT_CHANNEL_ANNOTATION: &str = "oke.oraclecloud.com/agent-channel";

/// The ConfigMap with the fingerprints of the controllers' keys: an entry for each replica, under its pod's name.
pub const CONTROLLER_KEYS: &str = "oke-node-controller-keys";

/// On a Node: the NodeTask that cordoned it, as its name and uid. Only a cordon with it is removed, and only by that task.
pub const CORDON_ANNOTATION: &str = "oke.oraclecloud.com/cordoned-by";
/// The most characters of its value.
pub const CORDON_OWNER_MAX: usize = 128;
