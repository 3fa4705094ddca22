//! Retry tokens: with one, a create that is sent twice is done once.

use aws_lc_rs::digest::{SHA256, digest};

/// A token for one intention (`opc-retry-token`): for 24 hours, the service answers a repeated create with the same token
/// and body with the first result. Derived from stable facts, so that a process that crashed after sending sends the same
/// token again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RetryToken(String);

impl RetryToken {
    /// The token of an intention, for example `["VnicAttachment", uid, generation, epoch]`. A new intention (after the
    /// object was deleted, or a day later) needs other parts: count an epoch.
    pub fn derive(parts: &[&str]) -> Self {
        let mut text = Vec::new();
        for part in parts {
            // With its length, so that ["ab", "c"] and ["a", "bc"] differ.
            text.extend_from_slice(&part.len().to_be_bytes());
            text.extend_from_slice(part.as_bytes());
        }
        // 64 characters: the most that the service accepts.
        Self(hex(digest(&SHA256, &text).as_ref()))
    }

    /// The token as it is sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_intention_has_the_same_token_in_every_process() {
        let token = RetryToken::derive(&["VnicAttachment", "b2f1", "1"]);
        assert_eq!(token, RetryToken::derive(&["VnicAttachment", "b2f1", "1"]));
        assert_eq!(token.as_str(), "28b9b96c77ef46646014adf8c95300cdfba572ccf9d2319947875344d7f39da2");
        assert_eq!(token.as_str().len(), 64, "as many characters as the service takes");
    }

    #[test]
    fn another_generation_or_another_split_is_another_token() {
        let tokens = [["ab", "c"], ["a", "bc"], ["abc", ""], ["", "abc"]].map(|parts| RetryToken::derive(&parts));
        for (index, token) in tokens.iter().enumerate() {
            assert!(!tokens[..index].contains(token));
        }
    }
}
