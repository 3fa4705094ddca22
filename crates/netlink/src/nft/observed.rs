//! What of a table's rules is in the kernel: their comments, by which they are recognized.

use crate::error::Cause;
use crate::wire::attributes;

use super::encode::{COMMENT, HEADER_LEN};

// linux/netfilter/nf_tables.h
const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_USERDATA: u16 = 7;

/// The comment of a rule, empty when it has none, if it is of this table.
pub(crate) fn rule(payload: &[u8], table: &str) -> Result<Option<String>, Cause> {
    let mut found = String::new();
    for attribute in attributes::after(payload, HEADER_LEN) {
        match attribute? {
            (NFTA_RULE_TABLE, value) if attributes::text_of(value) != table => return Ok(None),
            (NFTA_RULE_USERDATA, value) => found = comment(value).unwrap_or_default(),
            _ => {}
        }
    }
    Ok(Some(found))
}

/// User data is another program's: whatever it holds, it is never malformed.
fn comment(mut data: &[u8]) -> Option<String> {
    loop {
        let (&[kind, length], rest) = data.split_first_chunk()?;
        let value = rest.get(..usize::from(length))?;
        if kind == COMMENT {
            return Some(attributes::text_of(value));
        }
        data = rest.get(usize::from(length)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_found_behind_other_notes() {
        assert_eq!(comment(&[9, 1, 7, 0, 3, b'a', b'b', 0]).as_deref(), Some("ab"));
        for broken in [&[][..], &[0], &[0, 9, b'a'], &[9, 0], &[9, 1, 7]] {
            assert_eq!(comment(broken), None, "{broken:?}");
        }
    }
}
