//! Arbitrary bytes: reported, never a panic.

use proptest::prelude::*;

use super::world::{A, A_IP, A_IP6, B, B_IP, NOW, POD_IP, ROUTER, ROUTER6, SERVICES, fabric, fin, ping, ping6};
use crate::fabric::DropReason;
use crate::fabric::frame::{self, Pair};

fn seeds() -> Vec<Vec<u8>> {
    vec![
        ping(Pair { from: (A.1, A_IP), to: (B.1, B_IP) }),
        ping(Pair { from: (A.1, A_IP), to: ROUTER }),
        ping6(Pair { from: (A.1, A_IP6), to: (ROUTER.0, ROUTER6) }),
        fin(Pair { from: (A.1, POD_IP), to: (B.1, B_IP) }, 8080),
        frame::arp_request(A.1, A_IP, B_IP),
        frame::neighbour_solicitation(A.1, A_IP6, ROUTER6),
        frame::neighbour_advertisement(Pair { from: (A.1, A_IP6), to: (ROUTER.0, ROUTER6) }, A_IP6, false),
    ]
}

proptest! {
    #[test]
    fn damaged_frames_never_panic(
        seed in 0..7_usize,
        cut in 0..120_usize,
        changes in prop::collection::vec((12..120_usize, any::<u8>()), 0..6),
    ) {
        let mut bytes = seeds()[seed].clone();
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(cut.max(20));
        let mut fabric = fabric();
        let _ = fabric.handle(NOW, A.0, &bytes);
        let _ = fabric.handle(NOW, SERVICES.0, &bytes);
        let _ = fabric.tick(NOW * 2);
    }
}

#[test]
fn short_frames_are_malformed() {
    let mut fabric = fabric();
    for seed in seeds() {
        for length in [0, 5, 13, 16] {
            assert_eq!(fabric.handle(NOW, A.0, &seed[..length]), []);
        }
    }
    assert!(fabric.drops().iter().all(|drop| matches!(drop.reason, DropReason::Malformed(_))));
}

#[test]
fn a_sender_of_random_sources_cannot_fill_the_memory() {
    let mut fabric = fabric();
    for number in 0..5000_u32 {
        let frame = ping(Pair { from: (A.1, (0x0b00_0000 + number).into()), to: (B.1, B_IP) });
        let _ = fabric.handle(NOW, A.0, &frame);
    }
    let drops = fabric.drops();
    assert!(drops.len() <= 1025);
    assert_eq!(drops.iter().map(|drop| drop.frames).sum::<u64>(), 5000);
}
