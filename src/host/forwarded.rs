//! Who a request comes from when a proxy stands before us: `X-Forwarded-For` and `X-Forwarded-Proto`, from trusted
//! peers only.

use std::net::IpAddr;

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
#[derive(Clone, Debug)]
pub struct Trust(pub Option<Trusted>);

impl Trust {
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
        let scheme = match scheme.map(str::to_ascii_lowercase).as_deref() {
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
fn client(trusted: &Trusted, chain: &[&str]) -> Option<String> {
    if trusted.everybody() {
        return chain.first().map(|item| host(item).to_owned());
    }
    let known = |item: &&str| host(item).parse().is_ok_and(|address| trusted.contains(Some(address)));
    let found = chain.iter().rev().find(|item| !known(item)).or(chain.first())?;
    Some(host(found).to_owned())
}

fn items(value: &[u8]) -> impl DoubleEndedIterator<Item = &str> {
    std::str::from_utf8(value)
        .unwrap_or("")
        .split(',')
        .map(str::trim)
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
