//! Rings, channels and offloads of a veth pair. Its driver has no rings.

use netlink::{Netns, ethtool};

use super::saved::sh;

#[test]
fn channels_and_offloads_of_a_veth_change() {
    let netns = Netns::create().unwrap();
    sh(&netns, "ip link add one numtxqueues 4 numrxqueues 4 type veth peer name two numtxqueues 4 numrxqueues 4");
    let one = "one".parse().unwrap();
    netns
        .run(|| {
            let mut socket = ethtool::EthtoolSocket::open().unwrap().unwrap();
            assert!(socket.rings(&one).unwrap_err().is_unsupported());
            assert!(socket.set_rings(&one, Some(512), None).unwrap_err().is_unsupported());
            let channels = socket.channels(&one).unwrap();
            assert_eq!((channels.rx.limit, channels.tx.limit, channels.combined.limit), (4, 4, 0), "{channels:?}");
            socket.set_channels(&one, Some(2), Some(3), None).unwrap();
            let channels = socket.channels(&one).unwrap();
            assert_eq!((channels.rx.current, channels.tx.current), (2, 3));
            assert!(socket.set_channels(&one, Some(5), None, None).is_err(), "more than the device has");
            for is_on in [false, true] {
                let change = [("tx-tcp-segmentation".to_owned(), is_on), ("rx-gro".to_owned(), is_on)];
                socket.set_features(&one, &change.into()).unwrap();
                let features = socket.features(&one).unwrap();
                for name in ["tx-tcp-segmentation", "rx-gro"] {
                    let feature = features[name];
                    assert_eq!((feature.is_active, feature.is_requested, feature.is_changeable), (is_on, is_on, true));
                }
            }
            let features = socket.features(&one).unwrap();
            assert!(features.get("rx-ntuple-filter").is_none_or(|it| !it.is_changeable), "{features:?}");
            let gone = "gone".parse().unwrap();
            assert!(socket.channels(&gone).unwrap_err().is_not_found());
        })
        .unwrap();
}
