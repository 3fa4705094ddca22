//! Linux networking identifiers as types: two that could be swapped in a call are two types.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::text_type;

/// A link (interface) name: 1–15 bytes, none of `/`, `:`, `%`, white space; not `.` or `..` (the kernel's `dev_valid_name` and
/// `dev_prep_valid_name`). It is copied much and short, so it is not on the heap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IfName {
    /// UTF-8, and zeros behind it.
    bytes: [u8; Self::MAX_LEN],
    len: u8,
}

/// Why a text is not a link name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name:?} is not a link name: {reason}")]
pub struct IfNameError {
    name: String,
    reason: &'static str,
}

impl IfName {
    /// Whether a link of this name is the host's end of a pod's: [`HOST_LINK_PREFIX`] and twelve hexadecimal digits. Other programs'
    /// links may begin likewise.
    ///
    /// [`HOST_LINK_PREFIX`]: crate::HOST_LINK_PREFIX
    pub fn is_of_pod(&self) -> bool {
        let digits = self.as_str().strip_prefix(crate::HOST_LINK_PREFIX).unwrap_or_default();
        digits.len() == 12 && digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    }

    /// The kernel's IFNAMSIZ less the closing NUL, in bytes.
    pub const MAX_LEN: usize = 15;

    /// Checks a name.
    ///
    /// # Errors
    /// When the kernel would refuse it.
    pub fn new(name: impl AsRef<str>) -> Result<Self, IfNameError> {
        let name = name.as_ref();
        let reason = if name.is_empty() {
            "it is empty"
        } else if name.len() > Self::MAX_LEN {
            "it is longer than 15 bytes"
        } else if name == "." || name == ".." {
            "it is a directory name"
        } else if name.bytes().any(|byte| is_space(byte) || matches!(byte, b'/' | b':' | b'%' | 0)) {
            "it contains '/', ':', '%', NUL or white space"
        } else {
            let mut bytes = [0; Self::MAX_LEN];
            bytes.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
            return Ok(Self { bytes, len: u8::try_from(name.len()).unwrap_or_default() });
        };
        Err(IfNameError { name: name.to_owned(), reason })
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        // It was text when it was copied.
        let bytes = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

/// The kernel's `isspace`, whose table is that of Latin-1: 0xa0, the no-break space, is also the second byte of `à` in UTF-8.
const fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | b' ' | 0xa0)
}

text_type!(IfName, IfNameError);

impl fmt::Debug for IfName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IfName").field(&self.as_str()).finish()
    }
}

/// Our route to a pod's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRoute {
    /// The address of the pod.
    pub address: IpAddr,
    /// The host end of the pod's link.
    pub link: IfName,
    /// The attachment in the link's alias; `None` if an ADD was killed before it set the alias.
    pub identity: Option<String>,
}

/// A routing table number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TableId(pub u32);

impl TableId {
    /// The kernel's main table.
    pub const MAIN: Self = Self(254);
    /// The kernel's local table.
    pub const LOCAL: Self = Self(255);
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::MAIN => f.write_str("main"),
            Self::LOCAL => f.write_str("local"),
            Self(number) => write!(f, "{number}"),
        }
    }
}

/// A policy rule's priority: lower is read earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Priority(pub u32);

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A packet's or connection's mark as far as a mask shows it: the other bits belong to other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Mark {
    /// The bits under the mask.
    pub value: u32,
    /// The bits that count.
    pub mask: u32,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}/{:#x}", self.value, self.mask)
    }
}

/// A maximum transmission unit, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mtu(pub u32);

impl Mtu {
    /// What every OCI instance uses inside a VCN: jumbo frames are the default on all shapes.
    pub const VCN: Self = Self(9000);

    /// At most `limit`, if there is one.
    pub fn limited(self, limit: Option<Self>) -> Self {
        limit.map_or(self, |limit| limit.min(self))
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An 802.1Q VLAN identifier, 1–4094. "Untagged" is the absence of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct VlanTag(u16);

/// Why a number is not a VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0} is not a VLAN tag (1-4094)")]
pub struct VlanTagError(u16);

impl VlanTag {
    /// Checks a tag.
    ///
    /// # Errors
    /// Outside 1–4094 (0 means "no tag", 4095 is reserved by 802.1Q).
    pub const fn new(tag: u16) -> Result<Self, VlanTagError> {
        if tag == 0 || tag > 4094 { Err(VlanTagError(tag)) } else { Ok(Self(tag)) }
    }

    /// The tag as a number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for VlanTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<u16> for VlanTag {
    type Error = VlanTagError;
    fn try_from(tag: u16) -> Result<Self, Self::Error> {
        Self::new(tag)
    }
}

impl From<VlanTag> for u16 {
    fn from(tag: VlanTag) -> Self {
        tag.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_names_the_kernel_would_refuse_are_refused() {
        for bad in ["", ".", "..", "a/b", "a b", "a:b", "0123456789abcdef", "a\u{b}b", "a\0", "x%d", "%", "100%", "à"]
        {
            assert!(IfName::new(bad).is_err(), "{bad:?}");
        }
        for good in ["eth0", "eth0.100", "0123456789abcde", "wg-test", "é"] {
            assert_eq!(IfName::new(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn link_names_compare_like_their_texts() {
        let texts = ["a", "a\u{1}", "aa", "ab", "b", "eth0", "eth0.1", "eth1", "0123456789abcde", "é", "éé"];
        for (one, other) in texts.iter().flat_map(|one| texts.iter().map(move |other| (one, other))) {
            let names = IfName::new(one).unwrap().cmp(&IfName::new(other).unwrap());
            assert_eq!(names, one.cmp(other), "{one:?} {other:?}");
        }
        let name = IfName::new("ens5").unwrap();
        assert_eq!((format!("{name:?}"), name.to_string()), (r#"IfName("ens5")"#.to_owned(), "ens5".to_owned()));
        assert_eq!(serde_json::to_string(&name).unwrap(), r#""ens5""#);
        assert_eq!(serde_json::from_str::<IfName>(r#""ens5""#).unwrap(), name);
        assert!(serde_json::from_str::<IfName>(r#""ens 5""#).is_err());
    }

    #[test]
    fn vlan_tags_are_bounded() {
        assert!(VlanTag::new(0).is_err() && VlanTag::new(4095).is_err());
        assert_eq!(VlanTag::new(4094).map(VlanTag::get), Ok(4094));
    }
}
