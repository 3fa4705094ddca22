//! Blind mutation, for the seconds that `make test` has: libFuzzer's own operations without its eyes. Deterministic:
//! a number says which input, so that a failure can be made again.

/// Values that readers are wrong about.
const EDGES: [&[u8]; 10] = [
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"\x04\0\0\0",
    b"\x01\0\0\x80",
    b"-1",
    b"18446744073709551616",
    b"\"\"",
    b"null",
    b"[[[[",
    b"\xef\xbb\xbf",
];

/// Random numbers of a known sequence (xorshift).
#[derive(Clone, Copy, Debug)]
pub struct Sequence(u64);

impl Sequence {
    /// The sequence of that number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number below `limit`, 0 if that is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let number = usize::try_from(self.0 >> 16).unwrap_or(usize::MAX);
        number.checked_rem(limit).unwrap_or_default()
    }
}

/// One to four changes to `input`, some with a piece of `other`.
#[must_use]
pub fn mutated(input: &[u8], other: &[u8], random: &mut Sequence) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let end = (at + random.below(16)).min(bytes.len());
        match random.below(8) {
            0 => drop(bytes.drain(at..end)),
            1 => bytes.truncate(at),
            2 => bytes.insert(at, u8::try_from(random.below(256)).unwrap_or_default()),
            3 | 4 => {
                let flip = 1_u8 << random.below(8);
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= flip);
            }
            5 => {
                let edge = EDGES.get(random.below(EDGES.len())).copied().unwrap_or_default();
                drop(bytes.splice(at..end, edge.iter().copied()));
            }
            6 => {
                let again = bytes.get(at..end).unwrap_or_default().to_vec();
                drop(bytes.splice(at..at, again));
            }
            _ => {
                let from = random.below(other.len() + 1);
                let piece = other.get(from..(from + random.below(64)).min(other.len())).unwrap_or_default();
                drop(bytes.splice(at..end, piece.iter().copied()));
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_yields_same_input_and_another_seed_differs() {
        let made = |number| mutated(b"some input that is long enough", b"another one", &mut Sequence::new(number));
        assert_eq!(made(7), made(7));
        let all: std::collections::BTreeSet<_> = (0..100).map(made).collect();
        assert!(all.len() > 90, "{}", all.len());
    }

    #[test]
    fn nothing_can_be_mutated_too() {
        for number in 0..1000 {
            let _ = mutated(b"", b"", &mut Sequence::new(number));
        }
    }
}
