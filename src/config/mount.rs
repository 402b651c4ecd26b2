//! Where applications are mounted: `--mount PREFIX=MODULE[:ATTR]`, and what prefixes there can be.

use serde::{Serialize, Serializer};

use super::{Config, Exit, Interface, Source};

/// One application and its prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// With a slash first and none last; empty for the application at `/`.
    #[serde(serialize_with = "slash_for_none")]
    pub prefix: String,
    /// `MODULE[:ATTR]`; `None` for an object that Python holds, and for the demo application.
    pub app: Option<String>,
}

impl Mount {
    /// A mount, from what was given.
    ///
    /// # Errors
    /// A phrase that says what is accepted.
    pub fn new(prefix: &str, app: Option<&str>) -> Result<Mount, String> {
        let app = match app.map(str::trim) {
            Some("") => return Err("name the application behind the prefix, such as /api=api.main:app".to_owned()),
            app => app.map(str::to_owned),
        };
        Ok(Mount {
            prefix: prefix_of(prefix.trim())?,
            app,
        })
    }

    /// The prefix as it is written.
    #[must_use]
    pub fn shown(&self) -> &str {
        if self.prefix.is_empty() { "/" } else { &self.prefix }
    }
}

/// Parses `PREFIX=MODULE[:ATTR]`.
pub(super) fn mount(text: &str) -> Result<Mount, String> {
    match text.split_once('=') {
        Some((prefix, app)) => Mount::new(prefix, Some(app)),
        None => Err("give PREFIX=MODULE[:ATTR], such as /api=api.main:app".to_owned()),
    }
}

/// A prefix is compared with paths as they are sent, so it has one spelling: no escapes, no empty or dot segments. Commas
/// and semicolons could be meant to separate two of them.
fn prefix_of(text: &str) -> Result<String, String> {
    let Some(rest) = text.strip_prefix('/') else {
        return Err(format!("start the prefix with a slash, such as /{text}"));
    };
    if rest.is_empty() {
        return Ok(String::new());
    }
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+:@".contains(&byte);
    for segment in rest.split('/') {
        if segment.is_empty() || segment == "." || segment == ".." || !segment.bytes().all(plain) {
            return Err(
                "give a prefix of plain segments, such as /api or /api/v2: no escapes, no //, no dots alone".into(),
            );
        }
    }
    Ok(format!("/{rest}"))
}

impl Config {
    /// The same configuration with these mounts, which Python gave.
    ///
    /// # Errors
    /// As of [`Config::check_mounts`].
    pub(super) fn with_mounts(mut self, mounts: Vec<Mount>) -> Result<Config, Exit> {
        self.mount = mounts;
        for (name, source) in &mut self.sources {
            if *name == "mount" {
                *source = Source::Flag;
            }
        }
        self.check_mounts()
    }

    /// Each prefix once.
    ///
    /// # Errors
    /// A usage error (2).
    pub(super) fn check_mounts(self) -> Result<Config, Exit> {
        for (at, mount) in self.mount.iter().enumerate() {
            if self.app.is_some() && mount.prefix.is_empty() {
                let text = "--mount: APP and a mount at / are both the application at /; give only one of them";
                return Err(Exit::usage(text));
            }
            if self.mount[..at].iter().any(|other| other.prefix == mount.prefix) {
                return Err(Exit::usage(format!(
                    "--mount: there are two applications at {}; give each a prefix of its own",
                    mount.shown()
                )));
            }
        }
        Ok(self)
    }

    /// Every application that is served, by its number: APP, then the mounts in the order given.
    #[must_use]
    pub fn mounts(&self) -> Vec<Mount> {
        let mut mounts = self.mount.clone();
        if self.app.is_some() || mounts.is_empty() {
            let root = Mount {
                prefix: String::new(),
                app: self.app.clone(),
            };
            mounts.insert(0, root);
        }
        mounts
    }

    /// What decides model and backend: WSGI where nothing else is hosted. Beside an ASGI application asyncio runs, which
    /// cannot change threads, and views run on threads of their own under either model.
    #[must_use]
    pub fn interface_of(interfaces: &[Interface]) -> Interface {
        if !interfaces.is_empty() && interfaces.iter().all(|interface| *interface == Interface::Wsgi) {
            Interface::Wsgi
        } else {
            Interface::Asgi
        }
    }

    /// Threads for so many WSGI applications: of each as many views run at once as it has threads. Their numbers fit a byte.
    #[must_use]
    pub fn crew_size(&self, online_cpus: usize, applications: usize) -> usize {
        (self.handler_threads(online_cpus) * applications).min(usize::from(u8::MAX))
    }
}

fn slash_for_none<S: Serializer>(prefix: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if prefix.is_empty() { "/" } else { prefix })
}

#[cfg(all(test, not(feature = "modelled")))]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_one_spelling() {
        let prefix = |text: &str| mount(&format!("{text}=x")).map(|mount| mount.prefix);
        for (text, expected) in [
            ("/", ""),
            ("/api", "/api"),
            ("/api/", "/api"),
            (" /api/v2.1/~me ", "/api/v2.1/~me"),
            ("/a:b@c", "/a:b@c"),
        ] {
            assert_eq!(prefix(text).as_deref(), Ok(expected), "{text}");
        }
        for bad in [
            "", "api", "//", "//api", "/api//", "/a//b", "/.", "/a/..", "/a%20b", "/a b", "/ä", "/a?b", "/a,b", "/a;b",
            "/a#b",
        ] {
            assert!(prefix(bad).is_err(), "{bad}");
        }
        for bad in ["/api", "/api=", "/api= "] {
            assert!(mount(bad).is_err(), "{bad}");
        }
    }
}
