//! The start of a service, once the applications are known: which host each of them gets, and on which threads all runs.
//!
//! | hosted         | inverted                                       | pump                                             |
//! |----------------|------------------------------------------------|--------------------------------------------------|
//! | ASGI           | the loop on asyncio's thread                   | the loop on a thread of its own                  |
//! | WSGI           | the loop on whichever handler thread has it    | the same, with handler threads beside            |
//! | both           | as ASGI, with handler threads beside           | the same, with asyncio and handler threads beside |

use std::io;
use std::os::fd::OwnedFd;
use std::sync::PoisonError;

use m0_platform::sync::Arc;
use m0_platform::thread::{JoinHandle, online_cpus, usable_cpus};
use m0_platform::{Clock, Options, Waker};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::listen;
use super::service::{Found, Service, Thread, Waiting, guard, refused, settings};
use crate::config::{Exit, Interface, Model};
use crate::engine::Engine;
use crate::handoff::{Crew, Lane, Link, Routes, crew, rings};
use crate::host::asgi::Scopes;
use crate::host::wsgi;
use crate::model::baton::Baton;
use crate::model::pump::LoopThread;

/// ASGI applications and WSGI ones, each by the number of its mount.
type Sorted = (Scopes, Vec<Option<Py<PyAny>>>, Vec<Option<wsgi::App>>);

/// Starts a thread that runs the loop.
fn spawn(
    name: &str,
    run: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Result<JoinHandle<io::Result<()>>, Exit> {
    m0_platform::thread::spawn(name, run).map_err(|error| {
        Exit::failure(format!(
            "the thread {name} could not be started: {error}; raise the limit of threads or processes"
        ))
    })
}

impl Service {
    /// Whether views run on the threads that run the loop.
    fn has_baton(&self) -> bool {
        self.interface() == Interface::Wsgi && self.model() == Model::Inverted
    }

    /// The interface of each mount: whether it is WSGI.
    fn is_wsgi(&self) -> Vec<bool> {
        let all = self.interfaces.get().expect("known before anything is started");
        all.iter().map(|name| name == "wsgi").collect()
    }

    /// Makes the crew of the WSGI applications, if there are any. It stands beside whichever thread runs the loop; where
    /// every application is WSGI that is not asyncio's.
    pub(super) fn make_crew(&self) -> PyResult<Option<Arc<Crew>>> {
        let is_wsgi = self.is_wsgi();
        let applications = is_wsgi.iter().filter(|wsgi| **wsgi).count();
        if applications == 0 {
            return Ok(None);
        }
        if self.interface() == Interface::Wsgi {
            self.move_engine()?;
        }
        let (each, all) = (
            self.config.handler_threads(online_cpus()),
            self.config.crew_size(online_cpus(), applications),
        );
        let lane = Lane::new(is_wsgi.len(), each, Clock::new(), usable_cpus() > 1);
        let lane = if self.has_baton() { lane.without_barrier() } else { lane };
        let mut shared = self.host.get().shared.get()?;
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let (engine, routes) = match (&mut shared.link, &mut *thread) {
            (Link::Direct(direct), _) => (&mut direct.engine, &mut direct.routes),
            (Link::Ring(_), Thread::Waiting(waiting)) => (&mut waiting.engine, &mut waiting.routes),
            _ => return Err(PyRuntimeError::new_err("the server has been started already")),
        };
        let (crew, side) = crew(all, lane, engine.backend().waker(), Clock::new());
        let side = if self.has_baton() { side.inline() } else { side };
        *routes = Routes::new(side, is_wsgi);
        Ok(Some(crew))
    }

    /// Gives each application to its host.
    pub(super) fn sort_apps(
        &self,
        py: Python<'_>,
        apps: Vec<Found>,
        bound: &listen::BoundSocket,
        crew: Option<&Crew>,
    ) -> PyResult<Sorted> {
        let root_path = &self.config.root_path;
        let mut scopes = Scopes::new(py, root_path, self.trust(), bound.path.clone())?;
        let (mut asgi, mut wsgi) = (Vec::new(), Vec::new());
        for (mount, (app, interface, state)) in self.config.mounts().iter().zip(apps) {
            let (mut coroutine, mut view) = (None, None);
            if interface == "wsgi" {
                let wrapper = py.get_type::<wsgi::FileWrapper>().into_any();
                let multithread = crew.is_some_and(|crew| crew.size() > 1);
                let prefix = &mount.prefix;
                let environs = wsgi::Environs::new(py, root_path, prefix, self.trust(), wrapper, multithread)?;
                view = Some(wsgi::App { app, environs });
            } else {
                scopes.add(py, asgi.len(), &mount.prefix, state)?;
                coroutine = Some(app);
            }
            asgi.push(coroutine);
            wsgi.push(view);
        }
        Ok((scopes, asgi, wsgi))
    }

    /// Listens, on the thread that runs the loop from here on. Gives the baton where there is one.
    pub(super) fn run(&self, socket: OwnedFd) -> PyResult<Option<Arc<Baton<LoopThread>>>> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let mut waiting = match std::mem::replace(&mut *thread, Thread::None) {
            Thread::Waiting(waiting) => waiting,
            Thread::None => {
                let mut shared = self.host.get().shared.get()?;
                if let Link::Direct(direct) = &mut shared.link {
                    direct.engine.listen(socket)?;
                    direct.engine.submit()?;
                }
                return Ok(None);
            }
            Thread::Running(_) => return Err(PyRuntimeError::new_err("the server has been started already")),
        };
        waiting.engine.listen(socket)?;
        let run = LoopThread::new(waiting.engine, waiting.link, waiting.routes, usable_cpus() > 1);
        let log = self.log.clone();
        let (baton, handle) = if self.has_baton() {
            let baton = Arc::new(Baton::new(run));
            let watched = baton.clone();
            let watch = move || guard(&log, || watched.watch());
            (Some(baton), spawn("m0serve-sentinel", watch)?)
        } else {
            let work = move || guard(&log, || run.run());
            (None, spawn("m0serve-loop", work)?)
        };
        *thread = Thread::Running(handle);
        Ok(baton)
    }

    /// Ends the wait of asyncio's thread, where it serves applications.
    pub(super) fn waker_of_asyncio(&self) -> PyResult<Option<Waker>> {
        if self.interface() == Interface::Wsgi {
            return Ok(None);
        }
        let mut shared = self.host.get().shared.get()?;
        let shared = &mut *shared;
        Ok(match (&mut shared.link, &shared.foreign) {
            (Link::Direct(direct), _) => Some(direct.engine.backend().waker()),
            (Link::Ring(_), foreign) => foreign.as_ref().map(|backend| backend.waker()),
        })
    }

    /// Has the engine run on a thread of its own. Which interface an application has is known only once it is imported,
    /// within the loop that by then waits on the engine's backend: that one stays with the loop, the engine is made anew.
    fn move_engine(&self) -> PyResult<()> {
        let mut shared = self.host.get().shared.get()?;
        let Link::Direct(direct) = &mut shared.link else {
            return Ok(());
        };
        let to_host = direct.engine.backend().waker();
        let backend = self.config.backend_for(self.interface(), self.model());
        let (backend, resolved) = m0_platform::open(backend, &Options::default()).map_err(refused)?;
        let _ = self.moved.set(resolved);
        let engine = Engine::new(backend, settings(&self.config), Clock::new(), self.log.clone());
        let mut engine = engine.publishing(self.stats.clone());
        let (host, link) = rings(engine.backend().waker(), to_host);
        let Link::Direct(direct) = std::mem::replace(&mut shared.link, Link::Ring(host)) else {
            unreachable!("it was a moment ago")
        };
        shared.foreign = Some(direct.engine.into_backend());
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Thread::Waiting(Box::new(Waiting {
            engine,
            link,
            routes: Routes::default(),
        }));
        Ok(())
    }
}
