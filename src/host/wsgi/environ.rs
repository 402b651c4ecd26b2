//! The environ of a request (PEP 3333): a dict of its own for each, a copy of what its thread has prepared.
//!
//! What recurs is made once: what all environs of an application have in common is in its template; each thread has a
//! draft of it with the addresses of the connection that it served last, and keeps the last value of fields that
//! clients repeat. Strings are immutable, so requests may share them; the dicts they never share.

use std::net::{IpAddr, SocketAddr};

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::names::{NAMES, find};
use crate::forwarded::Trust;
use crate::handoff::{Request, RequestHead, Version};

/// What the environs of one application have in common.
pub struct Environs {
    template: Py<PyDict>,
    /// What is not part of `PATH_INFO`, where a path begins with it.
    before: String,
    trust: Trust,
}

/// What one thread keeps from request to request.
pub struct Kept {
    /// By the number of the mount.
    drafts: Vec<Option<Draft>>,
    /// Keys by the position of their fields' names in [`NAMES`], with the last value of those that are kept.
    fields: Vec<(Py<PyString>, Option<Value>)>,
}

/// The environ of the next request, as far as it does not depend on it.
struct Draft {
    template: Py<PyDict>,
    /// The addresses that it has.
    local: Option<SocketAddr>,
    peer: Option<IpAddr>,
    /// The fields of the last request, as they came; those that are larger than [`KEPT_FIELDS`] are none.
    last: Vec<u8>,
    repeated: Option<Repeated>,
}

/// The draft for a request whose fields are those of the ones before it, as keep-alive clients and proxies send them.
struct Repeated {
    template: Py<PyDict>,
    /// The fields that it has, as they came.
    fields: Vec<u8>,
    /// A proxy has added its own to them.
    forwarded: bool,
}

/// A value as it came, and as it is in an environ.
struct Value {
    bytes: Vec<u8>,
    text: Py<PyString>,
}

/// A longer value is not kept: it fills memory, and is seldom repeated.
const KEPT: usize = 256;
/// Nor are more fields than that, in bytes.
const KEPT_FIELDS: usize = 4096;
/// So many more entries make a dict of a template's grow to a size that has room for a request's fields: copying one that
/// is large enough is cheaper than growing each copy.
const ROOM: usize = 4;

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
        template.set_item(intern!(py, "REQUEST_METHOD"), intern!(py, "GET"))?;
        template.set_item(intern!(py, "SCRIPT_NAME"), format!("{root_path}{prefix}"))?;
        for key in ["PATH_INFO", "QUERY_STRING", "SERVER_NAME", "SERVER_PORT"] {
            template.set_item(PyString::intern(py, key), "")?; // for their order and the dict's size
        }
        template.set_item(intern!(py, "REMOTE_ADDR"), "")?;
        template.set_item(intern!(py, "SERVER_PROTOCOL"), intern!(py, "HTTP/1.1"))?;
        template.set_item("SERVER_SOFTWARE", "m0serve")?;
        template.set_item("wsgi.version", (1, 0))?;
        template.set_item(intern!(py, "wsgi.url_scheme"), intern!(py, "http"))?;
        template.set_item(intern!(py, "wsgi.input"), py.None())?;
        template.set_item("wsgi.errors", py.import("sys")?.getattr("stderr")?)?;
        template.set_item("wsgi.multithread", multithread)?;
        template.set_item("wsgi.multiprocess", false)?;
        template.set_item("wsgi.run_once", false)?;
        template.set_item("wsgi.file_wrapper", file_wrapper)?;
        // The body's end is an end of file: an application may read a chunked one to its end.
        template.set_item("wsgi.input_terminated", true)?;
        // A dict does not shrink when entries are taken out.
        for number in 0..ROOM {
            template.set_item(number.to_string(), "")?;
        }
        for number in 0..ROOM {
            template.del_item(number.to_string())?;
        }
        Ok(Environs {
            // The proxy has taken the root path off, or else no prefix would have been found; where there is none to be
            // found it may have left it.
            before: if prefix.is_empty() { root_path } else { prefix }.to_owned(),
            trust,
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
        kept: &mut Kept,
    ) -> PyResult<Bound<'py, PyDict>> {
        let head = &request.head;
        let (environ, mut forwarded) = kept.draft(py, self, request)?;
        let set = |key: &Bound<'py, PyString>, value: Bound<'py, PyString>| environ.set_item(key, value);
        let method = head.get(head.method);
        if method != b"GET" {
            set(intern!(py, "REQUEST_METHOD"), latin1(py, method))?;
        }
        let path = decode(head.get(head.path));
        let path_info = match path.strip_prefix(self.before.as_bytes()) {
            Some(rest) if rest.is_empty() || rest[0] == b'/' => rest,
            _ => &path,
        };
        set(intern!(py, "PATH_INFO"), latin1(py, path_info))?;
        let query = head.get(head.query);
        if !query.is_empty() {
            set(intern!(py, "QUERY_STRING"), latin1(py, query))?;
        }
        if head.version == Version::Http10 {
            set(intern!(py, "SERVER_PROTOCOL"), intern!(py, "HTTP/1.0").clone())?;
        }
        environ.set_item(intern!(py, "wsgi.input"), input)?;
        if forwarded || request.local.is_none() {
            forwarded = self.set_forwarded(py, &environ, request)?;
        }
        if let (Some(peer), false) = (request.peer, forwarded) {
            set(intern!(py, "REMOTE_PORT"), decimal(py, peer.port()))?;
        }
        Ok(environ)
    }

    /// What a trusted proxy says of the client, and names for a UNIX socket, which has none. Whether it says an address.
    #[cold]
    fn set_forwarded(&self, py: Python<'_>, environ: &Bound<'_, PyDict>, request: &Request) -> PyResult<bool> {
        let forwarded = self.trust.look(&request.head, request.peer.map(|peer| peer.ip()));
        if request.local.is_none() {
            let is_https = forwarded.scheme.as_ref().is_some_and(|scheme| *scheme == "https");
            let (name, port) = named(&request.head, if is_https { "443" } else { "80" });
            environ.set_item(intern!(py, "SERVER_NAME"), name)?;
            environ.set_item(intern!(py, "SERVER_PORT"), port)?;
        }
        if let Some(scheme) = forwarded.scheme {
            environ.set_item(intern!(py, "wsgi.url_scheme"), scheme)?;
        }
        match forwarded.client {
            Some(client) => environ.set_item(intern!(py, "REMOTE_ADDR"), client).map(|()| true),
            None => Ok(false),
        }
    }
}

impl Kept {
    /// Of a thread that has served nothing.
    #[must_use]
    pub fn new(py: Python<'_>) -> Kept {
        let fields = NAMES.iter().map(|name| {
            let key = name.key.map_or_else(
                || key_of(name.name.as_bytes()).expect("none of them is left out"),
                str::to_owned,
            );
            (PyString::intern(py, &key).unbind(), None)
        });
        Kept {
            drafts: Vec::new(),
            fields: fields.collect(),
        }
    }

    /// An environ with the addresses of the request's connection, and its fields. Whether a proxy has added its own to them.
    fn draft<'py>(
        &mut self,
        py: Python<'py>,
        environs: &Environs,
        request: &Request,
    ) -> PyResult<(Bound<'py, PyDict>, bool)> {
        let mount = usize::from(request.mount);
        if self.drafts.len() <= mount {
            self.drafts.resize_with(mount + 1, || None);
        }
        let draft = match &mut self.drafts[mount] {
            Some(draft) => draft,
            none => none.insert(Draft::new(environs.template.bind(py))?),
        };
        draft.set_addresses(py, request)?;
        let fields = raw_fields(&request.head);
        match &draft.repeated {
            Some(repeated) if repeated.fields == fields => {
                return Ok((repeated.template.bind(py).copy()?, repeated.forwarded));
            }
            _ => {}
        }
        let environ = draft.template.bind(py).copy()?;
        let forwarded = set_fields(py, &mut self.fields, &environ, &request.head)?;
        if fields.is_empty() || draft.last != fields {
            draft.last.clear();
            draft.last.extend_from_slice(fields);
        } else {
            draft.repeated = Some(Repeated {
                template: environ.copy()?.unbind(),
                fields: fields.to_vec(),
                forwarded,
            });
        }
        Ok((environ, forwarded))
    }
}

impl Draft {
    fn new(template: &Bound<'_, PyDict>) -> PyResult<Draft> {
        Ok(Draft {
            template: template.copy()?.unbind(),
            local: None,
            peer: None,
            last: Vec::new(),
            repeated: None,
        })
    }

    fn set_addresses(&mut self, py: Python<'_>, request: &Request) -> PyResult<()> {
        let (local, peer) = (request.local, request.peer.map(|peer| peer.ip()));
        if (self.local, self.peer) == (local, peer) {
            return Ok(());
        }
        let repeated = self.repeated.as_ref().map(|repeated| &repeated.template);
        for template in std::iter::once(&self.template).chain(repeated) {
            let template = template.bind(py);
            if let Some(local) = local {
                template.set_item(intern!(py, "SERVER_NAME"), local.ip().to_string())?;
                template.set_item(intern!(py, "SERVER_PORT"), local.port().to_string())?;
            }
            let peer = peer.map_or_else(String::new, |peer| peer.to_string());
            template.set_item(intern!(py, "REMOTE_ADDR"), peer)?;
        }
        (self.local, self.peer) = (local, peer);
        Ok(())
    }
}

/// A request's fields as they came, where that says all of them: what an absolute-form target says of the host is elsewhere.
fn raw_fields(head: &RequestHead) -> &[u8] {
    match head.fields.first() {
        Some((name, _)) if head.path.start == head.method.end + 1 => {
            let fields = &head.buf[name.start as usize..];
            if fields.len() <= KEPT_FIELDS { fields } else { &[] }
        }
        _ => &[],
    }
}

/// Enters a request's fields. Whether a proxy has added its own to them.
fn set_fields(
    py: Python<'_>,
    kept: &mut [(Py<PyString>, Option<Value>)],
    environ: &Bound<'_, PyDict>,
    head: &RequestHead,
) -> PyResult<bool> {
    let (mut seen, mut forwarded) = (0_u64, false);
    for (name, bytes) in head.iter() {
        let Some(at) = find(name) else {
            if let Some(key) = key_of(name) {
                let key = PyString::new(py, &key);
                let before = environ.get_item(&key)?;
                add(environ, &key, before, latin1(py, bytes), ",")?;
            }
            continue;
        };
        let (key, last) = &mut kept[at];
        let (name, key) = (&NAMES[at], (*key).bind(py));
        let value = match last {
            _ if !name.keep || bytes.len() > KEPT => latin1(py, bytes),
            Some(last) if last.bytes == bytes => last.text.bind(py).clone(),
            last => Value::keep(py, last, bytes),
        };
        let before = if seen & 1 << at == 0 || name.key.is_some() {
            None
        } else {
            environ.get_item(key)?
        };
        seen |= 1 << at;
        forwarded |= name.forwarded;
        let between = if name.name == "cookie" { "; " } else { "," };
        add(environ, key, before, value, between)?;
    }
    Ok(forwarded)
}

impl Value {
    fn keep<'py>(py: Python<'py>, last: &mut Option<Value>, bytes: &[u8]) -> Bound<'py, PyString> {
        let text = latin1(py, bytes);
        let mut kept = last.take().map_or_else(Vec::new, |last| last.bytes);
        kept.clear();
        kept.extend_from_slice(bytes);
        *last = Some(Value {
            bytes: kept,
            text: text.clone().unbind(),
        });
        text
    }
}

/// Enters a field, behind what there is of the same name.
fn add<'py>(
    environ: &Bound<'py, PyDict>,
    key: &Bound<'py, PyString>,
    before: Option<Bound<'py, PyAny>>,
    value: Bound<'py, PyString>,
    between: &str,
) -> PyResult<()> {
    match before {
        None => environ.set_item(key, value),
        Some(before) => environ.set_item(key, format!("{}{between}{}", before.cast::<PyString>()?, value)),
    }
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
    let len = isize::try_from(bytes.len()).expect("a slice is no longer than that");
    // SAFETY: the interpreter is attached; pointer and length are of a slice, which is copied; without a name of an error
    // handler the default one is meant. The result is a new reference to a str, or null for want of memory, at which
    // `from_owned_ptr` panics.
    unsafe {
        let text = ffi::PyUnicode_DecodeLatin1(bytes.as_ptr().cast(), len, std::ptr::null());
        Bound::from_owned_ptr(py, text).cast_into_unchecked()
    }
}

/// A number in decimal.
fn decimal(py: Python<'_>, mut number: u16) -> Bound<'_, PyString> {
    let mut text = [0; 5];
    let mut at = text.len();
    loop {
        at -= 1;
        text[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return latin1(py, &text[at..]);
        }
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
