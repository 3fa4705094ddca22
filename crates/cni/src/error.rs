//! The error that a plugin answers with: a code for machines, a message for the person who must act, details for the log.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};
use vcn::excerpt;

use crate::Version;

/// Lengths in a reply, in characters: the kubelet cuts events at 1024 bytes, and long log lines are useless. Quotes in a
/// message are cut where they are quoted, so that the end of the message with the next step stays.
const MSG_LIMIT: usize = 1000;
const DETAILS_LIMIT: usize = 8000;
pub(crate) const QUOTED: usize = 100;

/// An error code of the protocol: below 100 the specification's, from 100 the plugin's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// 1: the configuration's version is not supported, or lacks the verb.
    pub const INCOMPATIBLE_VERSION: Self = Self(1);
    /// 2: a field of the configuration requests what the plugin cannot do. The message names key and value.
    pub const UNSUPPORTED_FIELD: Self = Self(2);
    /// 3: the container is unknown. It tells the runtime that no DEL is needed: almost never what is meant.
    pub const UNKNOWN_CONTAINER: Self = Self(3);
    /// 4: environment variables are missing or wrong.
    pub const INVALID_ENVIRONMENT: Self = Self(4);
    /// 5: reading or writing failed.
    pub const IO_FAILURE: Self = Self(5);
    /// 6: the configuration cannot be decoded.
    pub const DECODING_FAILURE: Self = Self(6);
    /// 7: the configuration was decoded and is wrong.
    pub const INVALID_CONFIG: Self = Self(7);
    /// 8: the network namespace is not usable (of the reference library, not of the specification's table).
    pub const INVALID_NETNS: Self = Self(8);
    /// 11: passing; the runtime should try again later.
    pub const TRY_AGAIN_LATER: Self = Self(11);
    /// 50, STATUS only: no ADD can succeed.
    pub const NOT_AVAILABLE: Self = Self(50);
    /// 51, STATUS only: no ADD can succeed, and containers of the network may have lost connectivity.
    pub const LIMITED_CONNECTIVITY: Self = Self(51);
    /// 100: a defect of the plugin (a panic). Plugins number their own codes from 101.
    pub const INTERNAL: Self = Self(100);
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An error as the runtime gets it. The message says what was being done, to what, and what to do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{msg} (code {code}){}{details}", if details.is_empty() { "" } else { ": " })]
pub struct Error {
    /// The number by which runtimes tell errors apart.
    pub code: ErrorCode,
    /// For the person who must act: runtimes show it in the pod's events.
    pub msg: String,
    /// Causes and circumstances; may be empty.
    pub details: String,
}

impl Error {
    /// An error without details.
    pub fn new(code: ErrorCode, msg: impl Into<String>) -> Self {
        Self { code, msg: msg.into(), details: String::new() }
    }

    /// Appends to the details, after a semicolon if there are some already.
    #[must_use]
    pub fn with_details(mut self, details: impl fmt::Display) -> Self {
        let details = details.to_string();
        if !self.details.is_empty() && !details.is_empty() {
            self.details.push_str("; ");
        }
        self.details.push_str(&details);
        self
    }

    /// Appends an error and all its causes to the details.
    #[must_use]
    pub fn caused_by(self, error: &dyn std::error::Error) -> Self {
        let mut chain = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            chain.push_str(": ");
            chain.push_str(&error.to_string());
            cause = error.source();
        }
        self.with_details(chain)
    }

    /// The reply: one line of JSON, in the terms of `version`.
    pub fn to_json(&self, version: Version) -> String {
        let mut reply = Map::new();
        reply.insert("cniVersion".into(), version.as_str().into());
        reply.insert("code".into(), self.code.0.into());
        // Kubelet shows the message of STATUS as a node condition, which is one line.
        reply.insert("msg".into(), excerpt(&one_line(&self.msg), MSG_LIMIT).into());
        // Optional, but some decoders insist on it.
        reply.insert("details".into(), excerpt(&one_line(&self.details), DETAILS_LIMIT).into());
        Value::Object(reply).to_string()
    }

    /// The same error in words that a runtime does not take for success. containerd's go-cni drops every DEL error
    /// whose text contains "not found", or (without a netns) "no such file or directory": the clean-up would never be
    /// tried again.
    #[must_use]
    pub(crate) fn in_words_for_del(self) -> Self {
        Self { code: self.code, msg: unswallowed(&self.msg), details: unswallowed(&self.details) }
    }
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

fn unswallowed(text: &str) -> String {
    let text = replace_ignoring_case(text, "not found", "absent");
    replace_ignoring_case(&text, "no such file or directory", "absent file or directory")
}

fn replace_ignoring_case(text: &str, pattern: &str, with: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    // to_ascii_lowercase keeps byte positions, so an index into it is one into the text.
    while let Some(at) = rest.to_ascii_lowercase().find(pattern) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        out.push_str(with);
        rest = from.split_at(pattern.len()).1;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_one_line_and_says_the_configurations_version() {
        let error = Error::new(ErrorCode::NOT_AVAILABLE, "no pool\n\n  yet").with_details("a").with_details("b");
        assert_eq!(
            error.to_json(Version::V1_1_0),
            r#"{"cniVersion":"1.1.0","code":50,"msg":"no pool yet","details":"a; b"}"#
        );
    }

    #[test]
    fn del_errors_avoid_the_words_that_runtimes_swallow() {
        let io = std::io::Error::from_raw_os_error(2);
        let error = Error::new(ErrorCode(101), "link Not Found, vnic not found: é")
            .caused_by(&io)
            .in_words_for_del()
            .to_json(Version::V1_0_0);
        let lower = error.to_lowercase();
        assert!(!lower.contains("not found") && !lower.contains("no such file or directory"), "{error}");
        assert!(error.contains("link absent, vnic absent: é") && error.contains("(os error 2)"), "{error}");
    }

    #[test]
    fn causes_are_listed_once_each() {
        #[derive(Debug, thiserror::Error)]
        #[error("reading the pool")]
        struct PoolError(#[source] std::fmt::Error);
        let error = Error::new(ErrorCode::IO_FAILURE, "m").caused_by(&PoolError(std::fmt::Error));
        assert!(error.details.starts_with("reading the pool: an error occurred"), "{error}");
    }
}
