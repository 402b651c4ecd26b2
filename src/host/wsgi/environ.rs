//! The environ of a request (PEP 3333): a dict of its own for each, from a template with interned names.

use std::net::SocketAddr;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::handoff::{Request, RequestHead, Version};
use crate::host::forwarded::Trust;

/// What the environs of one application have in common.
pub struct Environs {
    template: Py<PyDict>,
    script_name: String,
    /// What is not part of `PATH_INFO`, where a path begins with it.
    before: String,
    trust: Trust,
    /// Keys of fields that most requests have, by the fields' names.
    names: Vec<(&'static str, Py<PyString>)>,
}

/// Fields whose keys are made once, most frequent first.
const NAMES: [&str; 20] = [
    "host",
    "user-agent",
    "accept",
    "accept-encoding",
    "accept-language",
    "connection",
    "cookie",
    "referer",
    "authorization",
    "cache-control",
    "origin",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-real-ip",
    "x-request-id",
    "x-requested-with",
    "if-none-match",
    "if-modified-since",
    "transfer-encoding",
];

impl Environs {
    /// A builder. `root_path` is where a proxy publishes the server, `prefix` where the application is mounted in it; both
    /// are without a slash at the end.
    ///
    /// # Errors
    /// What looking up `sys.stderr` gave.
    pub fn new(
        py: Python<'_>,
        root_path: &str,
        prefix: &str,
        trust: Trust,
        file_wrapper: Bound<'_, PyAny>,
        multithread: bool,
    ) -> PyResult<Self> {
        let template = PyDict::new(py);
        for key in ["REQUEST_METHOD", "SCRIPT_NAME", "PATH_INFO", "QUERY_STRING"] {
            template.set_item(PyString::intern(py, key), "")?; // for their order and the dict's size
        }
        template.set_item("SERVER_NAME", "")?;
        template.set_item("SERVER_PORT", "")?;
        template.set_item("SERVER_PROTOCOL", intern!(py, "HTTP/1.1"))?;
        template.set_item("SERVER_SOFTWARE", "m0serve")?;
        template.set_item("wsgi.version", (1, 0))?;
        template.set_item("wsgi.url_scheme", intern!(py, "http"))?;
        template.set_item("wsgi.input", py.None())?;
        template.set_item("wsgi.errors", py.import("sys")?.getattr("stderr")?)?;
        template.set_item("wsgi.multithread", multithread)?;
        template.set_item("wsgi.multiprocess", false)?;
        template.set_item("wsgi.run_once", false)?;
        template.set_item("wsgi.file_wrapper", file_wrapper)?;
        // The body's end is an end of file: an application may read a chunked one to its end.
        template.set_item("wsgi.input_terminated", true)?;
        let names = NAMES.iter().map(|name| {
            let key = key_of(name.as_bytes()).expect("none of them is left out");
            (*name, PyString::intern(py, &key).unbind())
        });
        Ok(Environs {
            script_name: format!("{root_path}{prefix}"),
            // The proxy has taken the root path off, or else no prefix would have been found; where there is none to be
            // found it may have left it.
            before: if prefix.is_empty() { root_path } else { prefix }.to_owned(),
            trust,
            names: names.collect(),
            template: template.unbind(),
        })
    }

    /// The environ of one request.
    ///
    /// # Errors
    /// None but those of memory.
    pub fn build<'py>(
        &self,
        py: Python<'py>,
        request: &Request,
        input: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let head = &request.head;
        let environ = self.template.bind(py).copy()?;
        let set = |key: &Bound<'py, PyString>, value: Bound<'py, PyString>| environ.set_item(key, value);
        set(intern!(py, "REQUEST_METHOD"), latin1(py, head.get(head.method)))?;
        let path = decode(head.get(head.path));
        let path_info = match path.strip_prefix(self.before.as_bytes()) {
            Some(rest) if rest.is_empty() || rest[0] == b'/' => rest,
            _ => &path,
        };
        if !self.script_name.is_empty() {
            set(intern!(py, "SCRIPT_NAME"), PyString::new(py, &self.script_name))?;
        }
        set(intern!(py, "PATH_INFO"), latin1(py, path_info))?;
        set(intern!(py, "QUERY_STRING"), latin1(py, head.get(head.query)))?;
        if head.version == Version::Http10 {
            set(intern!(py, "SERVER_PROTOCOL"), intern!(py, "HTTP/1.0").clone())?;
        }
        environ.set_item(intern!(py, "wsgi.input"), input)?;
        self.set_addresses(py, &environ, request)?;
        self.set_fields(py, &environ, head)?;
        Ok(environ)
    }

    fn set_addresses(&self, py: Python<'_>, environ: &Bound<'_, PyDict>, request: &Request) -> PyResult<()> {
        let forwarded = self.trust.look(&request.head, request.peer.map(|peer| peer.ip()));
        let (name, port) = match request.local {
            Some(local) => (host(local), local.port().to_string()),
            None => {
                let is_https = forwarded.scheme.as_ref().is_some_and(|scheme| *scheme == "https");
                named(&request.head, if is_https { "443" } else { "80" })
            }
        };
        environ.set_item(intern!(py, "SERVER_NAME"), name)?;
        environ.set_item(intern!(py, "SERVER_PORT"), port)?;
        match (forwarded.client, request.peer) {
            (Some(client), _) => environ.set_item(intern!(py, "REMOTE_ADDR"), client)?,
            (None, Some(peer)) => {
                environ.set_item(intern!(py, "REMOTE_ADDR"), host(peer))?;
                environ.set_item(intern!(py, "REMOTE_PORT"), peer.port().to_string())?;
            }
            (None, None) => environ.set_item(intern!(py, "REMOTE_ADDR"), "")?,
        }
        match forwarded.scheme {
            Some(scheme) => environ.set_item(intern!(py, "wsgi.url_scheme"), scheme),
            None => Ok(()),
        }
    }

    fn set_fields(&self, py: Python<'_>, environ: &Bound<'_, PyDict>, head: &RequestHead) -> PyResult<()> {
        for (name, value) in head.iter() {
            let value = latin1(py, value);
            match name {
                b"content-type" => environ.set_item(intern!(py, "CONTENT_TYPE"), value)?,
                b"content-length" => environ.set_item(intern!(py, "CONTENT_LENGTH"), value)?,
                _ => {
                    let known = self.names.iter().find(|(known, _)| known.as_bytes() == name);
                    let key = match known {
                        Some((_, key)) => key.bind(py).clone(),
                        None => match key_of(name) {
                            Some(key) => PyString::new(py, &key),
                            None => continue,
                        },
                    };
                    match environ.get_item(&key)? {
                        None => environ.set_item(key, value)?,
                        Some(before) => {
                            let between = if name == b"cookie" { "; " } else { "," };
                            let joined = format!("{}{between}{}", before.cast::<PyString>()?, value);
                            environ.set_item(key, joined)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

fn host(address: SocketAddr) -> String {
    address.ip().to_string()
}

/// Name and port as the client has them, where a UNIX socket has none: PEP 3333 wants both, and neither empty.
fn named(head: &RequestHead, default: &str) -> (String, String) {
    let host = head.iter().find(|(name, _)| *name == b"host");
    let host = String::from_utf8_lossy(host.map_or(b"", |(_, value)| value));
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port),
        _ => (&*host, ""),
    };
    let or = |text: &str, other: &str| if text.is_empty() { other } else { text }.to_owned();
    (or(name, "localhost"), or(port, default))
}

/// The key of a field. None for a name with `_`, which would stand for the one with `-` in its place, and for `Proxy`,
/// whose key is the variable that HTTP clients take their proxy from (CVE-2016-5385).
fn key_of(name: &[u8]) -> Option<String> {
    if name == b"proxy" || name.contains(&b'_') {
        return None;
    }
    let mut key = String::with_capacity(5 + name.len());
    key.push_str("HTTP_");
    key.extend(name.iter().map(|byte| match byte {
        b'-' => '_',
        byte => char::from(byte.to_ascii_uppercase()),
    }));
    Some(key)
}

/// Bytes as PEP 3333 wants them in strings: each the character of its number.
fn latin1<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.is_ascii() => PyString::new(py, text),
        _ => PyString::new(py, &bytes.iter().map(|byte| char::from(*byte)).collect::<String>()),
    }
}

/// Percent-decodes a path to bytes.
fn decode(raw: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    if memchr::memchr(b'%', raw).is_none() {
        return raw.into();
    }
    crate::http1::percent_decode(raw).into()
}

#[cfg(test)]
mod tests {
    use super::key_of;

    #[test]
    fn keys_shadow_nothing() {
        assert_eq!(key_of(b"x-a").as_deref(), Some("HTTP_X_A"));
        assert_eq!(key_of(b"x_a"), None);
        assert_eq!(key_of(b"proxy"), None);
        assert_eq!(
            key_of(b"proxy-authorization").as_deref(),
            Some("HTTP_PROXY_AUTHORIZATION")
        );
    }
}
