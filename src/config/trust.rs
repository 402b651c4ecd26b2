//! Whose `X-Forwarded-*` fields are believed: the list of `--forwarded-allow-ips` (promise 33).

use std::net::IpAddr;

use serde::{Serialize, Serializer};

use super::values::unsigned;

/// A parsed list of addresses and networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trusted {
    /// As it was written, for `--doctor`.
    text: String,
    /// `*`: everybody, UNIX sockets too.
    all: bool,
    /// `unix`: whoever connects over a UNIX socket.
    unix: bool,
    /// Networks: an address, and how many of its first bits count.
    networks: Vec<(IpAddr, u8)>,
}

impl Trusted {
    /// Reads a list such as `127.0.0.1,::1,10.0.0.0/8`; `*` is everybody, `unix` peers of a UNIX socket, nothing nobody.
    ///
    /// # Errors
    /// A phrase that names the item and what is accepted.
    pub fn parse(text: &str) -> Result<Trusted, String> {
        let mut trusted = Trusted {
            text: text.to_owned(),
            all: false,
            unix: false,
            networks: Vec::new(),
        };
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            match item {
                "*" => trusted.all = true,
                "unix" => trusted.unix = true,
                _ => trusted.networks.push(network(item)?),
            }
        }
        Ok(trusted)
    }

    /// Whether this peer's word is believed; `None` is a peer on a UNIX socket.
    #[must_use]
    pub fn contains(&self, peer: Option<IpAddr>) -> bool {
        let Some(peer) = peer else { return self.all || self.unix };
        let peer = peer.to_canonical();
        let within = |(network, bits): &(IpAddr, u8)| {
            common_bits(*network, peer).is_some_and(|common| common >= u32::from(*bits))
        };
        self.all || self.networks.iter().any(within)
    }

    /// Whether it says `*`: then no address of a forwarding chain is untrusted, and the leftmost is the client.
    #[must_use]
    pub fn everybody(&self) -> bool {
        self.all
    }
}

impl Serialize for Trusted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// `address` or `address/bits`.
fn network(item: &str) -> Result<(IpAddr, u8), String> {
    let how = || format!("'{item}' is no address or network; give a list such as 127.0.0.1,10.0.0.0/8, or * for all");
    let (address, bits) = match item.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (item, None),
    };
    let address: IpAddr = address.parse().map_err(|_| how())?;
    let widest = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        None => widest,
        Some(bits) => unsigned(bits)
            .and_then(|bits| u8::try_from(bits).ok())
            .filter(|bits| *bits <= widest)
            .ok_or_else(how)?,
    };
    // A dual-stack socket shows IPv4 peers as ::ffff:a.b.c.d: they are compared as what they are. A network of mapped
    // addresses narrower than all of IPv4 becomes the IPv4 network that it means.
    match address.to_canonical() {
        IpAddr::V4(v4) if address.is_ipv6() && bits >= 96 => Ok((IpAddr::V4(v4), bits - 96)),
        _ => Ok((address, bits)),
    }
}

/// How many first bits two addresses share; `None` when they are of different families.
fn common_bits(a: IpAddr, b: IpAddr) -> Option<u32> {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros()),
        (IpAddr::V6(a), IpAddr::V6(b)) => Some((a.to_bits() ^ b.to_bits()).leading_zeros()),
        _ => None,
    }
}

#[cfg(all(test, not(feature = "modelled")))]
mod tests {
    use super::*;

    fn trusts(list: &str, peer: &str) -> bool {
        Trusted::parse(list).unwrap().contains(Some(peer.parse().unwrap()))
    }

    #[test]
    fn addresses_and_networks_match_what_they_name() {
        assert!(trusts("127.0.0.1,::1", "127.0.0.1"));
        assert!(trusts("127.0.0.1, ::1", "::1"));
        assert!(trusts("127.0.0.1", "::ffff:127.0.0.1"));
        assert!(trusts("::ffff:10.0.0.0/104", "10.2.3.4"));
        assert!(!trusts("127.0.0.1", "127.0.0.2"));
        assert!(trusts("10.0.0.0/8", "10.255.0.1"));
        assert!(!trusts("10.0.0.0/8", "11.0.0.1"));
        assert!(trusts("2001:db8::/32", "2001:db8:1::1"));
        assert!(!trusts("2001:db8::/32", "2001:db9::1"));
    }

    #[test]
    fn the_whole_of_one_family_says_nothing_of_the_other() {
        assert!(trusts("0.0.0.0/0", "8.8.8.8"));
        assert!(!trusts("0.0.0.0/0", "2001:db8::1"));
        assert!(!trusts("::/0", "8.8.8.8"));
        assert!(trusts("*", "8.8.8.8"));
    }

    #[test]
    fn unix_peers_have_no_address() {
        assert!(!Trusted::parse("127.0.0.1").unwrap().contains(None));
        assert!(Trusted::parse("127.0.0.1,unix").unwrap().contains(None));
        assert!(Trusted::parse("*").unwrap().contains(None));
        assert!(!Trusted::parse("").unwrap().contains(None));
    }

    #[test]
    fn nonsense_is_named() {
        for bad in [
            "localhost",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0.0/+8",
            "::1/129",
            "1.2.3",
        ] {
            assert!(Trusted::parse(bad).unwrap_err().contains(bad), "{bad}");
        }
    }
}
