//! Who a request comes from when a proxy stands before us: `X-Forwarded-For` and `X-Forwarded-Proto`, from trusted
//! peers only.

use std::net::{IpAddr, SocketAddr};

use crate::config::Trusted;
use crate::handoff::RequestHead;

/// What the fields of a trusted proxy say.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Forwarded {
    /// The client's address, as it was written.
    pub client: Option<String>,
    /// `http` or `https`.
    pub scheme: Option<&'static str>,
}

/// Whose fields are believed; `None` when nobody's are.
#[derive(Clone, Debug, Default)]
pub struct Trust(pub Option<Trusted>);

impl Trust {
    /// Where a request comes from, for a log: the address that the fields name, with port 0, since they name no port, or
    /// `peer`. What is no address could be made to look like another line, and is not believed.
    #[must_use]
    pub fn source(&self, head: &RequestHead, peer: Option<SocketAddr>) -> Option<SocketAddr> {
        let client = self.look(head, peer.map(|peer| peer.ip())).client;
        let address = client.and_then(|client| client.parse().ok());
        address.map(|address| SocketAddr::new(address, 0)).or(peer)
    }

    /// Reads the fields of a request that came from `peer` (`None`: over a UNIX socket).
    #[must_use]
    pub fn look(&self, head: &RequestHead, peer: Option<IpAddr>) -> Forwarded {
        let Some(trusted) = self.0.as_ref().filter(|trusted| trusted.contains(peer)) else {
            return Forwarded::default();
        };
        let (mut chain, mut scheme) = (Vec::new(), None);
        for (name, value) in head.iter() {
            match name {
                b"x-forwarded-for" => chain.extend(items(value)),
                b"x-forwarded-proto" => scheme = items(value).next_back().or(scheme),
                _ => {}
            }
        }
        let scheme = match scheme.map(|scheme| scheme.to_ascii_lowercase()).as_deref() {
            Some("https" | "wss") => Some("https"),
            Some("http" | "ws") => Some("http"),
            _ => None,
        };
        Forwarded {
            client: client(trusted, &chain),
            scheme,
        }
    }
}

/// The rightmost address that is not a trusted proxy's: everything left of it may have been invented by the client.
fn client(trusted: &Trusted, chain: &[String]) -> Option<String> {
    if trusted.everybody() {
        return chain.first().map(|item| host(item).to_owned());
    }
    let known = |item: &String| host(item).parse().is_ok_and(|address| trusted.contains(Some(address)));
    let found = chain.iter().rev().find(|item| !known(item)).or(chain.first())?;
    Some(host(found).to_owned())
}

/// The items of a list. One that is not text must not hide the others: the client wrote the first ones, as it liked, and
/// the proxy only added to them.
fn items(value: &[u8]) -> impl DoubleEndedIterator<Item = String> {
    value
        .split(|byte| *byte == b',')
        .map(|item| String::from_utf8_lossy(item.trim_ascii()).into_owned())
        .filter(|item| !item.is_empty())
}

/// An address without its port or brackets.
fn host(item: &str) -> &str {
    if let Some(inner) = item.strip_prefix('[') {
        return inner.split(']').next().unwrap_or(inner);
    }
    match item.split_once(':') {
        Some((host, port)) if !port.contains(':') => host,
        _ => item,
    }
}

#[cfg(all(test, not(feature = "modelled")))]
mod tests {
    use super::{Trusted, client, items};

    fn found(trusted: &str, field: &[u8]) -> Option<String> {
        let chain: Vec<String> = items(field).collect();
        client(&Trusted::parse(trusted).expect("a good list"), &chain)
    }

    #[test]
    fn the_rightmost_untrusted_address_is_the_client() {
        let local = "127.0.0.1,::1,10.0.0.0/8";
        for (field, expected) in [
            (&b"192.0.2.7"[..], "192.0.2.7"),
            (b"6.6.6.6, 192.0.2.7", "192.0.2.7"),
            (b"6.6.6.6,192.0.2.7 ,10.1.2.3,\t::1,", "192.0.2.7"),
            (b"6.6.6.6, 192.0.2.7:80, 10.1.2.3:4711, [::1]:9", "192.0.2.7"),
            (b"6.6.6.6, [2001:db8::7]:80", "2001:db8::7"),
            (b"6.6.6.6, ::ffff:10.1.2.3", "6.6.6.6"),
            (b"10.0.0.1, 127.0.0.1", "10.0.0.1"),
            (b"6.6.6.6, unknown", "unknown"),
            (b"\xff\xfe, 192.0.2.7", "192.0.2.7"),
        ] {
            assert_eq!(found(local, field).as_deref(), Some(expected), "{field:?}");
        }
        assert_eq!(found("*", b"192.0.2.7, 6.6.6.6").as_deref(), Some("192.0.2.7"));
        for nothing in [&b""[..], b" , ,"] {
            assert_eq!(found(local, nothing), None);
        }
    }
}
