//! TUNABLE_KEYS: kernel settings that the node's owner adds to the table of those that policies may name.

use std::collections::BTreeSet;
use std::fmt;

use tunables::keys;

/// The most keys, and the longest one in bytes.
const KEYS_MAX: usize = 32;
const KEY_MAX: usize = 128;

/// Keys of sysctls that policies may set, with periods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunableKeys(pub BTreeSet<String>);

impl TunableKeys {
    /// Reads a list with commas.
    ///
    /// # Errors
    /// If an entry is not a key, or is one that no policy may set.
    pub fn parse(text: &str) -> Result<Self, String> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let keys: BTreeSet<String> = entries.map(check).collect::<Result<_, String>>()?;
        if keys.len() > KEYS_MAX {
            return Err(format!("{} keys, and at most {KEYS_MAX} are read", keys.len()));
        }
        Ok(Self(keys))
    }
}

impl fmt::Display for TunableKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(String::as_str).collect::<Vec<_>>().join(","))
    }
}

fn check(entry: &str) -> Result<String, String> {
    let is_part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte))
    };
    if entry.len() > KEY_MAX || !entry.contains('.') || !entry.split('.').all(is_part) {
        return Err(format!("{entry:?} is not a key such as vm.max_map_count"));
    }
    match keys::is_never_allowed(entry) {
        Some(refusal) => Err(format!("no policy may set {entry}: {refusal}")),
        None => Ok(entry.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_refused_ones_are_not() {
        let keys = TunableKeys::parse(" dev.raid.speed_limit_max, net.ipv4.tcp_new ,").unwrap();
        assert_eq!(keys.to_string(), "dev.raid.speed_limit_max,net.ipv4.tcp_new");
        assert_eq!(TunableKeys::parse(""), Ok(TunableKeys::default()));
        for refused in ["kernel.core_pattern", "net.ipv4.ip_forward", "vm", "vm/x.y", "vm..x", "..", "VM.X", "a.b c"] {
            assert!(TunableKeys::parse(refused).is_err(), "{refused}");
        }
        let many: Vec<String> = (0..33).map(|number| format!("vm.k{number}")).collect();
        assert!(TunableKeys::parse(&many.join(",")).is_err());
    }
}
