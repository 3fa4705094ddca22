//! What a capture contains. It stays on the node; only its token, whose hash the object has, opens it.
#![expect(unreachable_pub, reason = "KubeSchema writes a public copy of each struct into a function")]

use std::net::IpAddr;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::is_false;
use crate::schema;

/// The parts of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(has(self.state) && self.state) || has(self.packets) || has(self.logs)")
        .message("needs state: true, packets or logs")
)]
pub struct Capture {
    /// The SHA-256 of the token that opens the capture, 64 lower-case hexadecimal digits.
    #[schemars(schema_with = "schema::sha256")]
    pub token_hash: String,
    /// If true, the node's part of a support bundle; false if absent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub state: bool,
    /// Packets of the host's network; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<PacketCapture>,
    /// Logs of units; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<LogCapture>,
}

/// Which packets, and how many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.port) || (has(self.protocol) && self.protocol in ['TCP', 'UDP'])")
        .message("port needs protocol TCP or UDP")
        .field_path(".port")
)]
pub struct PacketCapture {
    /// For how many seconds, 1 to 300; 30 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1, 300>")]
    pub seconds: Option<u16>,
    /// The file's largest size in MiB, 1 to 64; 16 if absent.
    #[serde(default, rename = "sizeMiB", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1, 64>")]
    pub size_mib: Option<u8>,
    /// Only packets of this protocol; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<PacketProtocol>,
    /// Only packets from or to this address; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::address")]
    pub host: Option<IpAddr>,
    /// Only packets from or to this port, with protocol TCP or UDP; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1, 65535>")]
    pub port: Option<u16>,
    /// Only packets of this link of the host; all links if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::one_link_name")]
    pub interface: Option<String>,
    /// If true, packets are captured with their payload, which cannot be redacted: the creator also needs the verb
    /// capture-payload. Headers only if absent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub payload: bool,
}

/// A protocol of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum PacketProtocol {
    /// TCP.
    TCP,
    /// UDP.
    UDP,
    /// ICMP of both families.
    ICMP,
    /// ARP.
    ARP,
}

/// Which logs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogCapture {
    /// Units of systemd, 1 to 8.
    #[schemars(schema_with = "schema::units")]
    pub units: Vec<String>,
    /// How many hours back, 1 to 24; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1, 24>")]
    pub hours: Option<u8>,
}
