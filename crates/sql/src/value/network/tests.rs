use super::{Mac, Network};
use crate::value::{Datum, from_text, to_text};
use freshet_engine::schema::{NetworkKind, Type, Value};
use proptest::prelude::*;
use std::cmp::Ordering;

const INET: Type = Type::Network(NetworkKind::Inet);

fn network() -> impl Strategy<Value = Network> {
    // Few bits, so that prefixes meet.
    let address = prop_oneof![any::<u128>(), (0u32..128).prop_map(|bit| 1 << bit), Just(0), Just(u128::MAX)];
    (any::<bool>(), address, 0u8..=128).prop_map(|(is_v6, address, bits)| match is_v6 {
        true => Network { is_v6, address, bits },
        false => Network { is_v6, address: address as u32 as u128, bits: bits % 33 },
    })
}

/// PostgreSQL's `network_cmp`.
fn order(a: Network, b: Network) -> Ordering {
    let common = a.bits.min(b.bits);
    let (a_net, b_net) = (Network { bits: common, ..a }.network(), Network { bits: common, ..b }.network());
    let families = a.is_v6.cmp(&b.is_v6);
    let networks = families.then(a_net.address.cmp(&b_net.address));
    networks.then(a.bits.cmp(&b.bits)).then(a.address.cmp(&b.address))
}

proptest! {
    #[test]
    fn bytes_are_in_the_order_of_addresses(a in network(), b in network()) {
        let (stored_a, stored_b) = (a.to_stored(), b.to_stored());
        prop_assert_eq!(stored_a.cmp(&stored_b), order(a, b));
        prop_assert_eq!(INET.compare(&Value::Bytes(&stored_a), &Value::Bytes(&stored_b)), order(a, b));
        prop_assert_eq!(Network::from_stored(&stored_a), a);
    }

    #[test]
    fn what_is_written_reads_back(a in network()) {
        let datum = a.to_datum();
        let mut text = Vec::new();
        to_text(INET, &datum.as_value(), &mut text);
        prop_assert_eq!(from_text(INET, &text), Ok(datum));
        let mut sent = Vec::new();
        a.send(NetworkKind::Inet, &mut sent);
        prop_assert_eq!(Network::receive(NetworkKind::Inet, &sent), Ok(a));
        for length in 0..sent.len() {
            prop_assert!(Network::receive(NetworkKind::Inet, &sent[..length]).is_err());
        }
        sent.push(0);
        prop_assert!(Network::receive(NetworkKind::Inet, &sent).is_err());
    }

    #[test]
    fn networks_contain_what_begins_as_they_do(a in network(), b in network()) {
        let is_alike = a.is_v6 == b.is_v6 && Network { bits: b.bits, ..a }.network().address == b.network().address;
        prop_assert_eq!(a.is_within_or_equal(b), a.bits >= b.bits && is_alike);
        prop_assert_eq!(a.is_within(b), a.bits > b.bits && is_alike);
        if a.is_within_or_equal(b) {
            prop_assert!(order(b.network(), a).is_le() && order(a, b.last()).is_le());
        }
        prop_assert_eq!(a.overlaps(b), a.is_within_or_equal(b) || b.is_within_or_equal(a));
        if let Ok(both) = a.merged(b) {
            prop_assert!(a.is_within_or_equal(both) && b.is_within_or_equal(both));
            let narrower = Network { bits: (both.bits + 1).min(both.width()), ..both };
            let fits = |network: Network| network.bits >= narrower.bits && network.begins_as(a, narrower.bits);
            prop_assert!(both.bits == both.width() || both.bits == a.bits.min(b.bits) || !fits(b));
        }
    }

    #[test]
    fn sums_and_differences_undo_each_other(a in network(), count in any::<i64>()) {
        if let Ok(sum) = a.plus(count.into()) {
            prop_assert_eq!(sum.minus(a), Ok(count));
            prop_assert_eq!(sum.plus(-i128::from(count)), Ok(a));
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[0-9a-f:./x ]{0,24}") {
        for kind in NetworkKind::ALL {
            let ty = Type::Network(kind);
            if let Ok(datum) = from_text(ty, text.as_bytes()) {
                let mut shown = Vec::new();
                to_text(ty, &datum.as_value(), &mut shown);
                prop_assert_eq!(from_text(ty, &shown), Ok(datum));
            }
        }
    }

    #[test]
    fn any_bytes_are_received_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
        for kind in [NetworkKind::Inet, NetworkKind::Cidr] {
            if let Ok(network) = Network::receive(kind, &bytes) {
                prop_assert_eq!(Network::from_stored(&network.to_stored()), network);
            }
        }
        for kind in [NetworkKind::Mac, NetworkKind::Mac8] {
            if let Ok(Datum::Bytes(stored)) = Mac::receive(kind, &bytes) {
                prop_assert_eq!(Mac::from_stored(&stored).to_datum(kind), Ok(Datum::Bytes(stored)));
            }
        }
    }
}
