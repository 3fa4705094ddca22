//! What one run of a plugin was: one line of JSON, small enough for one datagram.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::Phase;

/// The longest line, its newline included: one page, well below what a datagram may carry.
pub const LINE_LIMIT: usize = 4096;

/// One run of a plugin. Fields that a reader does not know are skipped, and those that are missing are empty, so that
/// plugin and agent may be of different versions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VerbRecord {
    /// When it began, in milliseconds since 1970.
    pub unix_millis: u64,
    /// The name of the plugin.
    pub plugin: String,
    /// The version of the plugin.
    pub plugin_version: String,
    /// The CNI operation, such as ADD.
    pub verb: String,
    /// The name of the network.
    pub network: String,
    /// The id of the container.
    pub container_id: String,
    /// The interface in the container.
    pub ifname: String,
    /// The pod's namespace, if the runtime passed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_namespace: Option<String>,
    /// The pod's name, if the runtime passed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// The addresses given or freed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// How many more there were, for which the line had no room.
    #[serde(skip_serializing_if = "is_zero")]
    pub addresses_left_out: usize,
    /// The error's code; 0 is success.
    pub code: u32,
    /// The message of the error; empty on success.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Where the time went.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
    /// The whole of it, in microseconds.
    pub total_micros: u64,
}

impl VerbRecord {
    /// A record that begins now.
    pub fn begin(plugin: &str, plugin_version: &str, verb: &str) -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            unix_millis: u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX),
            plugin: plugin.to_owned(),
            plugin_version: plugin_version.to_owned(),
            verb: verb.to_owned(),
            ..Self::default()
        }
    }

    /// The record as one line, newline included, of at most [`LINE_LIMIT`] bytes: texts and lists are cut as needed, the
    /// message least. Always whole JSON.
    pub fn to_line(&self) -> String {
        let (mut line, mut limit) = (self.json_line(), LINE_LIMIT);
        // At the latest 16 bytes for each text fit, six for each byte when all must be escaped.
        while line.len() > LINE_LIMIT && limit > 16 {
            limit /= 2;
            line = self.cut(limit).json_line();
        }
        line
    }

    /// The record in a line.
    ///
    /// # Errors
    /// When it is not one.
    pub fn from_line(line: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(line)
    }

    fn json_line(&self) -> String {
        // Neither of serde_json's two failures, maps with odd keys and writers that fail, can happen here.
        let mut line = serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned());
        line.push('\n');
        line
    }

    /// The record with a message of at most `limit` bytes; other texts and lists are mostly shorter anyway.
    fn cut(&self, limit: usize) -> Self {
        let (text, list) = (limit.min(253), (limit / 4).min(32));
        let mut cut = self.clone();
        cut.message = cut_text(&cut.message, limit);
        let named = [&mut cut.plugin, &mut cut.plugin_version, &mut cut.verb, &mut cut.network];
        let texts = named.into_iter().chain([&mut cut.container_id, &mut cut.ifname]);
        let texts = texts.chain(&mut cut.pod_namespace).chain(&mut cut.pod_name);
        texts.for_each(|given| *given = cut_text(given, text));
        cut.addresses.truncate(list);
        cut.addresses_left_out = cut.addresses_left_out.saturating_add(self.addresses.len() - cut.addresses.len());
        cut.phases.truncate(list);
        cut.phases.iter_mut().for_each(|(name, _)| *name = cut_text(name, text).into());
        cut
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn cut_text(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(limit.saturating_sub('…'.len_utf8()));
    format!("{}…", text.split_at(end).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> VerbRecord {
        VerbRecord {
            unix_millis: 1_700_000_000_000,
            network: "vcn-native".into(),
            container_id: "c".into(),
            ifname: "eth0".into(),
            pod_name: Some("web-0".into()),
            addresses: vec!["10.0.0.5".parse().unwrap(), "fd00::5".parse().unwrap()],
            phases: vec![("ipam".into(), 5), ("links".into(), 700)],
            total_micros: 710,
            ..VerbRecord::begin("vcn-native", "0.1.0", "ADD")
        }
    }

    #[test]
    fn a_line_reads_back_as_the_record() {
        let line = record().to_line();
        assert!(line.ends_with("}\n") && line.matches('\n').count() == 1, "{line}");
        assert_eq!(VerbRecord::from_line(line.as_bytes()).unwrap(), record());
        assert!(line.contains(r#""phases":[["ipam",5],["links",700]]"#), "{line}");
    }

    #[test]
    fn a_long_message_is_cut_and_the_rest_kept() {
        for filler in ["x", "é", "\u{1}", "\"", "\n"] {
            let long = VerbRecord { code: 101, message: filler.repeat(20_000), ..record() };
            let line = long.to_line();
            assert!(line.len() <= LINE_LIMIT, "{filler:?}: {}", line.len());
            let read = VerbRecord::from_line(line.as_bytes()).unwrap();
            assert!(read.message.starts_with(filler) && read.message.ends_with('…'));
            assert_eq!(VerbRecord { message: String::new(), ..read }, VerbRecord { code: 101, ..record() });
        }
    }

    #[test]
    fn even_a_monstrous_record_fits_into_a_line() {
        let oversized = || "\u{1}".repeat(10_000);
        let long = VerbRecord {
            plugin: oversized(),
            plugin_version: oversized(),
            verb: oversized(),
            network: oversized(),
            container_id: oversized(),
            ifname: oversized(),
            pod_namespace: Some(oversized()),
            pod_name: Some(oversized()),
            addresses: vec!["2001:db8:1111:2222:3333:4444:5555:6666".parse().unwrap(); 1000],
            addresses_left_out: 0,
            code: u32::MAX,
            message: oversized(),
            phases: (0..1000).map(|_| (oversized().into(), u64::MAX)).collect(),
            total_micros: u64::MAX,
            unix_millis: u64::MAX,
        };
        let line = long.to_line();
        assert!(line.len() <= LINE_LIMIT, "{}", line.len());
        let read = VerbRecord::from_line(line.as_bytes()).unwrap();
        assert_eq!((read.code, read.addresses.len() + read.addresses_left_out), (u32::MAX, 1000));
    }

    #[test]
    fn line_without_room_for_all_addresses_counts_the_omitted() {
        let address = |number: u16| IpAddr::from([0x2603, 0xc020, 0x4005, 0x21ab, 0, 0, 0xabcd, number]);
        let long = VerbRecord { addresses: (0..240).map(address).collect(), ..record() };
        let read = VerbRecord::from_line(long.to_line().as_bytes()).unwrap();
        let kept = (0..32).map(address).collect();
        assert_eq!(read, VerbRecord { addresses: kept, addresses_left_out: 208, ..record() });
        assert!(!record().to_line().contains("addressesLeftOut"), "as long as there is nothing to say");
        // As an untrusted sender may write.
        let more = VerbRecord { addresses_left_out: usize::MAX, ..long };
        assert_eq!(VerbRecord::from_line(more.to_line().as_bytes()).unwrap().addresses_left_out, usize::MAX);
    }

    #[test]
    fn records_of_other_versions_are_read() {
        let newer = br#"{"verb":"DEL","code":0,"somethingNew":{"a":1}}"#;
        assert_eq!(VerbRecord::from_line(newer).unwrap(), VerbRecord { verb: "DEL".into(), ..VerbRecord::default() });
    }
}
