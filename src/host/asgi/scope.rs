//! The scope of a request (ASGI 3.0, HTTP 2.5): a dict of its own for each request, from a template.
//!
//! Nothing mutable in it is shared between requests. Immutable parts (header names, addresses, constant strings) are.

use std::net::SocketAddr;

use m0_platform::Token;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::forwarded::{Forwarded, Trust};
use crate::handoff::{Request, RequestHead, Version};
use crate::http1::percent_decode;

/// Header names that get one object for all requests.
const NAMES: [&str; 40] = [
    "host",
    "user-agent",
    "accept",
    "accept-encoding",
    "accept-language",
    "connection",
    "content-type",
    "content-length",
    "cookie",
    "referer",
    "origin",
    "authorization",
    "cache-control",
    "pragma",
    "upgrade",
    "upgrade-insecure-requests",
    "sec-fetch-dest",
    "sec-fetch-mode",
    "sec-fetch-site",
    "sec-fetch-user",
    "sec-ch-ua",
    "sec-ch-ua-mobile",
    "sec-ch-ua-platform",
    "dnt",
    "te",
    "transfer-encoding",
    "if-none-match",
    "if-modified-since",
    "range",
    "x-requested-with",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-real-ip",
    "x-request-id",
    "forwarded",
    "via",
    "expect",
    "priority",
    "traceparent",
];

/// A connection, and its `client` and `server` as objects.
type Addresses = (Token, Py<PyAny>, Py<PyAny>);

/// What the scopes of one application have in common.
struct Of {
    template: Py<PyDict>,
    /// The lifespan's, copied for each request.
    state: Option<Py<PyDict>>,
}

/// Builds scopes.
pub struct Scopes {
    /// By the number of the mount; none for those of another host.
    mounts: Vec<Option<Of>>,
    asgi: Py<PyDict>,
    /// Where a proxy publishes the server; the applications' prefixes come after it.
    root_path: String,
    trust: Trust,
    /// Known names by a hash of length and two letters; see [`name_slot`].
    names: Vec<Option<(&'static str, Py<PyBytes>)>>,
    /// The `client` and `server` of each connection, by its slot.
    addresses: Vec<Option<Addresses>>,
    get: Py<PyString>,
    post: Py<PyString>,
    /// `server` where there is no address: the path of the UNIX socket.
    unix: Option<String>,
}

impl Scopes {
    /// A builder, for no application yet.
    pub fn new(py: Python<'_>, root_path: &str, trust: Trust, unix: Option<String>) -> PyResult<Self> {
        let asgi = PyDict::new(py);
        asgi.set_item("version", "3.0")?;
        asgi.set_item("spec_version", "2.5")?;
        let mut names: Vec<_> = (0..NAME_SLOTS).map(|_| None).collect();
        for name in NAMES {
            names[name_slot(name.as_bytes())] = Some((name, PyBytes::new(py, name.as_bytes()).unbind()));
        }
        Ok(Scopes {
            mounts: Vec::new(),
            asgi: asgi.unbind(),
            root_path: root_path.to_owned(),
            trust,
            names,
            addresses: Vec::new(),
            get: PyString::intern(py, "GET").unbind(),
            post: PyString::intern(py, "POST").unbind(),
            unix,
        })
    }

    /// Adds an application, by the number of its mount. `prefix` is empty at `/`; `state` is the lifespan's.
    ///
    /// # Errors
    /// None but those of memory.
    pub fn add(&mut self, py: Python<'_>, mount: usize, prefix: &str, state: Option<Py<PyDict>>) -> PyResult<()> {
        let template = PyDict::new(py);
        template.set_item("type", intern!(py, "http"))?;
        for key in ["asgi", "http_version", "server", "client", "scheme", "method"] {
            template.set_item(key, py.None())?; // only for their order and the dict's size
        }
        template.set_item("root_path", format!("{}{prefix}", self.root_path))?;
        template.set_item("scheme", intern!(py, "http"))?;
        template.set_item("http_version", intern!(py, "1.1"))?;
        if self.mounts.len() <= mount {
            self.mounts.resize_with(mount + 1, || None);
        }
        self.mounts[mount] = Some(Of {
            template: template.unbind(),
            state,
        });
        Ok(())
    }

    /// The scope of one request.
    pub fn build<'py>(&mut self, py: Python<'py>, request: &Request) -> PyResult<Bound<'py, PyDict>> {
        let head = &request.head;
        let of = self.mounts[usize::from(request.mount)].as_ref();
        let of = of.expect("a request comes to the host of its application");
        let scope = of.template.bind(py).copy()?;
        let state = of.state.as_ref().map(|state| state.bind(py).copy()).transpose()?;
        let forwarded = self.trust.look(head, request.peer.map(|peer| peer.ip()));
        scope.set_item(intern!(py, "asgi"), self.asgi.bind(py).copy()?)?;
        if head.version == Version::Http10 {
            scope.set_item(intern!(py, "http_version"), intern!(py, "1.0"))?;
        }
        self.set_addresses(py, &scope, request, forwarded)?;
        let method = match head.get(head.method) {
            b"GET" => self.get.bind(py).clone(),
            b"POST" => self.post.bind(py).clone(),
            method => PyString::new(py, std::str::from_utf8(method).expect("a method is a token (http1)")),
        };
        scope.set_item(intern!(py, "method"), method)?;
        let raw_path = head.get(head.path);
        let path = decode_path(raw_path);
        // As uvicorn has it: both paths begin with the root path that the server was told. The prefix of a mount is part
        // of what was sent, so they begin with the scope's whole root path, which Starlette takes off again.
        if self.root_path.is_empty() {
            scope.set_item(intern!(py, "path"), PyString::new(py, &path))?;
            scope.set_item(intern!(py, "raw_path"), PyBytes::new(py, raw_path))?;
        } else {
            scope.set_item(intern!(py, "path"), format!("{}{path}", self.root_path))?;
            let full = [self.root_path.as_bytes(), raw_path].concat();
            scope.set_item(intern!(py, "raw_path"), PyBytes::new(py, &full))?;
        }
        scope.set_item(intern!(py, "query_string"), PyBytes::new(py, head.get(head.query)))?;
        scope.set_item(intern!(py, "headers"), self.headers(py, head)?)?;
        let extensions = PyDict::new(py);
        extensions.set_item(intern!(py, "http.response.pathsend"), PyDict::new(py))?;
        scope.set_item(intern!(py, "extensions"), extensions)?;
        if let Some(state) = state {
            scope.set_item(intern!(py, "state"), state)?;
        }
        Ok(scope)
    }

    fn headers<'py>(&self, py: Python<'py>, head: &RequestHead) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (name, value) in head.iter() {
            let value = PyBytes::new(py, value);
            let pair = match &self.names[name_slot(name)] {
                Some((known, object)) if known.as_bytes() == name => (object.bind(py).clone(), value),
                _ => (PyBytes::new(py, name), value),
            };
            list.append(pair)?;
        }
        Ok(list)
    }

    fn set_addresses(
        &mut self,
        py: Python<'_>,
        scope: &Bound<'_, PyDict>,
        request: &Request,
        forwarded: Forwarded,
    ) -> PyResult<()> {
        let index = request.connection.index as usize;
        if self.addresses.len() <= index {
            self.addresses.resize_with(index + 1, || None);
        }
        let unix = self.unix.as_deref();
        let slot = &mut self.addresses[index];
        if slot.as_ref().is_none_or(|(token, ..)| *token != request.connection) {
            let client = address(py, request.peer)?;
            let server = match (request.local, unix) {
                (None, Some(path)) => (path, py.None()).into_pyobject(py)?.into_any().unbind(),
                (local, _) => address(py, local)?,
            };
            *slot = Some((request.connection, client, server));
        }
        let Some((_, client, server)) = slot else {
            unreachable!("filled above")
        };
        scope.set_item(intern!(py, "server"), &*server)?;
        match forwarded.client {
            None => scope.set_item(intern!(py, "client"), &*client)?,
            Some(host) => scope.set_item(intern!(py, "client"), (host, 0))?,
        }
        if let Some(scheme) = forwarded.scheme {
            scope.set_item(intern!(py, "scheme"), scheme)?;
        }
        Ok(())
    }
}

fn address(py: Python<'_>, address: Option<SocketAddr>) -> PyResult<Py<PyAny>> {
    let Some(address) = address else { return Ok(py.None()) };
    let pair: Bound<'_, PyTuple> = (address.ip().to_string(), address.port()).into_pyobject(py)?;
    Ok(pair.into_any().unbind())
}

const NAME_SLOTS: usize = 512;

/// Where a name would be among the known ones. The test below shows that no two of them share a slot.
fn name_slot(name: &[u8]) -> usize {
    let (Some(first), Some(last)) = (name.first(), name.last()) else {
        return 0;
    };
    let middle = name[name.len() / 2];
    let hash = usize::from(*first) * 7 + usize::from(*last) * 31 + usize::from(middle) * 101 + name.len() * 173;
    hash % NAME_SLOTS
}

/// Percent-decodes a path; bytes that are no UTF-8 afterwards become U+FFFD, as `urllib.parse.unquote` has it.
fn decode_path(raw: &[u8]) -> std::borrow::Cow<'_, str> {
    if !raw.contains(&b'%') {
        return String::from_utf8_lossy(raw);
    }
    String::from_utf8_lossy(&percent_decode(raw)).into_owned().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_have_slots_of_their_own() {
        let mut slots: Vec<_> = NAMES.iter().map(|name| name_slot(name.as_bytes())).collect();
        slots.sort_unstable();
        let all = slots.len();
        slots.dedup();
        assert_eq!(slots.len(), all);
    }

    #[test]
    fn paths_are_decoded_once_and_broken_escapes_stay() {
        assert_eq!(decode_path(b"/plain"), "/plain");
        assert_eq!(decode_path(b"/a%20b%2Fc%25%32%30"), "/a b/c%20");
        assert_eq!(decode_path("/%C3%A9".as_bytes()), "/é");
        assert_eq!(decode_path(b"/%zz%2"), "/%zz%2");
        assert_eq!(decode_path(b"/%FF"), "/\u{fffd}");
    }
}
