//! FNV-1a: names of links, records and locks are made of it, so it never changes, on no machine and in no version, as the
//! standard library's hasher may.

/// 64 bits of it.
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// 32 bits of it, which are not half of the 64.
pub fn fnv1a_32(bytes: impl IntoIterator<Item = u8>) -> u32 {
    bytes.into_iter().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the authors' list of test vectors (draft-eastlake-fnv, appendix C).
    #[test]
    fn the_hashes_are_those_of_the_authors() {
        assert_eq!((fnv1a(*b""), fnv1a_32(*b"")), (0xcbf2_9ce4_8422_2325, 0x811c_9dc5));
        assert_eq!((fnv1a(*b"a"), fnv1a_32(*b"a")), (0xaf63_dc4c_8601_ec8c, 0xe40c_292c));
        assert_eq!((fnv1a(*b"foobar"), fnv1a_32(*b"foobar")), (0x8594_4171_f739_67e8, 0xbf9c_f968));
    }
}
