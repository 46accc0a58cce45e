//! Which addresses a look-up may not lead to.
//!
//! A name on the list was listed for a host out in the world. A person who controls the name's records can point it
//! at this machine, the network it stands in or the cloud's metadata service, so every address that a look-up
//! returns is checked against the registries of special addresses, and so is every IPv4 address that an IPv6
//! address carries inside. An address that an operator lists is not checked against them: it was meant.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether no host out in the world has this address.
pub(crate) fn is_refused(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_special_v4(address),
        IpAddr::V6(address) => is_special_v6(address),
    }
}

/// IANA's special-purpose registry, multicast, and what is reserved.
const SPECIAL_V4: &[(Ipv4Addr, u32)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8), // this network; Linux connects 0.0.0.0 to itself
    (Ipv4Addr::new(10, 0, 0, 0), 8), // private
    (Ipv4Addr::new(100, 64, 0, 0), 10), // carriers' private, and a cloud's metadata
    (Ipv4Addr::new(127, 0, 0, 0), 8), // loopback
    (Ipv4Addr::new(168, 63, 129, 16), 32), // a cloud's host agent, in public clothes
    (Ipv4Addr::new(169, 254, 0, 0), 16), // link-local, and most clouds' metadata
    (Ipv4Addr::new(172, 16, 0, 0), 12), // private
    (Ipv4Addr::new(192, 0, 0, 0), 24), // protocol assignments, and a cloud's metadata
    (Ipv4Addr::new(192, 0, 2, 0), 24), // documentation
    (Ipv4Addr::new(192, 88, 99, 0), 24), // relays of 6to4, given up
    (Ipv4Addr::new(192, 168, 0, 0), 16), // private
    (Ipv4Addr::new(198, 18, 0, 0), 15), // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24), // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24), // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4), // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4), // reserved, and broadcast
];

fn is_special_v4(address: Ipv4Addr) -> bool {
    SPECIAL_V4.iter().any(|(network, length)| {
        let mask = u32::MAX << (32 - length);
        address.to_bits() & mask == network.to_bits()
    })
}

/// Everything outside global unicast is special but one prefix; inside it, these are too.
const SPECIAL_V6: &[(Ipv6Addr, u32)] = &[
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocol assignments, Teredo among them
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];
const GLOBAL_UNICAST: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
const MAPPED: (Ipv6Addr, u32) = (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96);
const NAT64: (Ipv6Addr, u32) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);
const SIX_TO_FOUR: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16);

fn is_special_v6(address: Ipv6Addr) -> bool {
    match carried_v4(address) {
        Some(carried) => is_special_v4(carried),
        None => {
            !lies_in(address, &GLOBAL_UNICAST) || SPECIAL_V6.iter().any(|network| lies_in(address, network))
        }
    }
}

/// The IPv4 address that an IPv6 address stands for.
pub(crate) fn carried_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let carried = |shift: u32| Some(Ipv4Addr::from_bits((address.to_bits() >> shift) as u32));
    if lies_in(address, &MAPPED) || lies_in(address, &NAT64) {
        return carried(0);
    }
    if lies_in(address, &SIX_TO_FOUR) {
        return carried(80);
    }
    None
}

fn lies_in(address: Ipv6Addr, (network, length): &(Ipv6Addr, u32)) -> bool {
    let mask = u128::MAX << (128 - length);
    address.to_bits() & mask == network.to_bits()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(text: &str) -> bool {
        is_refused(text.parse().expect("an address"))
    }

    #[test]
    fn addresses_of_the_world_are_let_through() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "99.255.255.255",
            "100.128.0.1",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.1",
            "192.0.1.1",
            "192.167.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "168.63.129.15",
            "2606:4700::1111",
            "2a00:1450:4001::1",
            "2001:200::1",
            "2001:4860:4860::8888",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
            "2002:101:101::1",
        ] {
            assert!(!refused(address), "{address}");
        }
    }

    #[test]
    fn addresses_of_somebody_nearby_are_refused_in_any_clothes() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.0.1",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "2002:c0a8:1::1",
            "2001::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "3fff::1",
            "100::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "ff0e::1",
            "5f00::1",
            "4000::1",
        ] {
            assert!(refused(address), "{address}");
        }
    }

    proptest! {
        #[test]
        fn an_ipv6_address_is_no_way_around_what_is_refused_as_ipv4(bits in any::<u32>(), low in any::<u64>()) {
            let inner = Ipv4Addr::from_bits(bits);
            let refused = is_refused(inner.into());
            prop_assert_eq!(is_refused(inner.to_ipv6_mapped().into()), refused);
            let nat64 = NAT64.0.to_bits() | u128::from(bits);
            prop_assert_eq!(is_refused(Ipv6Addr::from_bits(nat64).into()), refused);
            let relayed = SIX_TO_FOUR.0.to_bits() | u128::from(bits) << 80 | u128::from(low);
            prop_assert_eq!(is_refused(Ipv6Addr::from_bits(relayed).into()), refused);
            // What the standard library calls private in any way is refused too.
            let known = inner.is_private() || inner.is_loopback() || inner.is_link_local()
                || inner.is_multicast() || inner.is_documentation() || inner.is_unspecified() || inner.is_broadcast();
            prop_assert!(!known || refused);
        }
    }
}
