//! What an agent publishes about its channel.

use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;

/// How an agent can be reached, as JSON in an annotation of its Pod. Its address is the Pod's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// The TCP port on which the agent listens.
    pub port: u16,
    /// The fingerprint of the agent's public key.
    pub key: Fingerprint,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcement_is_json_with_port_and_key() {
        let announcement = Announcement { port: 9809, key: Fingerprint::of(b"") };
        let text = serde_json::to_string(&announcement).unwrap();
        assert!(text.starts_with(r#"{"port":9809,"key":"sha256:e3b0c442"#), "{text}");
        assert_eq!(serde_json::from_str::<Announcement>(&text).unwrap(), announcement);
        for wrong in ["", "{}", r#"{"port": 70000, "key": "sha256:"}"#, r#"{"port": 1, "key": "sha256:00"}"#] {
            assert!(serde_json::from_str::<Announcement>(wrong).is_err(), "{wrong}");
        }
    }
}
