//! The configuration as Python sees it: `_native.Config`, and the exception `_native.Exit`.
//!
//! A thin skin: what an option is and means stands in [`crate::config`].

use std::ffi::OsString;
use std::sync::Arc;

use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};

use crate::config::{Config, Exit, Interface, OptionValue};
use crate::doctor::{self, Facts};

/// Why the process should end: an exit code and one sentence.
#[pyclass(extends = PyException, frozen, name = "Exit", module = "m0serve._native")]
pub struct PyExit {
    exit: Exit,
}

#[pymethods]
impl PyExit {
    #[new]
    #[pyo3(signature = (code, message, to_stdout = false))]
    fn new(code: i32, message: String, to_stdout: bool) -> PyExit {
        PyExit {
            exit: Exit {
                code,
                message,
                to_stdout,
            },
        }
    }

    /// The process's exit code.
    #[getter]
    fn code(&self) -> i32 {
        self.exit.code
    }

    /// One sentence that names the fix.
    #[getter]
    fn message(&self) -> &str {
        &self.exit.message
    }

    /// Whether the message goes to stdout (help and version).
    #[getter]
    fn to_stdout(&self) -> bool {
        self.exit.to_stdout
    }

    fn __str__(&self) -> &str {
        &self.exit.message
    }
}

impl From<Exit> for PyErr {
    fn from(exit: Exit) -> PyErr {
        PyErr::new::<PyExit, _>((exit.code, exit.message, exit.to_stdout))
    }
}

/// The configuration of one server.
#[pyclass(frozen, name = "Config", module = "m0serve._native")]
pub struct PyConfig {
    config: Arc<Config>,
}

impl PyConfig {
    /// The configuration itself, for whoever builds the server.
    #[must_use]
    pub fn get(&self) -> &Arc<Config> {
        &self.config
    }
}

#[pymethods]
impl PyConfig {
    /// Parses a command line, without the program's name.
    #[staticmethod]
    fn parse(argv: Vec<OsString>) -> PyResult<PyConfig> {
        let argv = argv.into_iter().map(text).collect::<Result<Vec<String>, Exit>>()?;
        Ok(PyConfig {
            config: Arc::new(Config::parse(&argv)?),
        })
    }

    /// Takes the options of `m0serve.run`, and its mounts: prefixes, each with an import string, or none for an object.
    #[staticmethod]
    fn from_options(options: &Bound<'_, PyDict>, mounts: Vec<(String, Option<String>)>) -> PyResult<PyConfig> {
        let mut pairs = Vec::with_capacity(options.len());
        for (name, value) in options.iter() {
            let name: String = name.extract()?;
            let value = option_value(&name, &value)?;
            pairs.push((name, value));
        }
        Ok(PyConfig {
            config: Arc::new(Config::from_options(&pairs, &mounts)?),
        })
    }

    /// The model for applications of these interfaces; raises `Exit` (78) where it is not built.
    fn model_for(&self, interfaces: Vec<String>) -> PyResult<String> {
        Ok(Config::name_of(self.config.model_for(process_interface(&interfaces))?))
    }

    /// Every application by its number: its prefix as it is written, and its import string or none.
    fn mounts(&self) -> Vec<(String, Option<String>)> {
        let mounts = self.config.mounts().into_iter();
        mounts.map(|mount| (mount.shown().to_owned(), mount.app)).collect()
    }

    /// The report of `--doctor` as JSON, and the exit code.
    #[pyo3(signature = (*, interfaces, loop_name, interpreter, refusal))]
    fn report(
        &self,
        interfaces: Vec<Option<String>>,
        loop_name: Option<String>,
        interpreter: String,
        refusal: Option<&Bound<'_, PyExit>>,
    ) -> (String, i32) {
        let refusal = refusal.map(|refusal| refusal.get().exit.clone());
        let report = doctor::report(
            &self.config,
            Facts {
                interfaces,
                event_loop: loop_name,
                interpreter,
                refusal,
            },
        );
        (report.to_json(), report.code())
    }

    #[getter]
    fn interface(&self) -> String {
        Config::name_of(self.config.interface)
    }

    #[getter]
    fn factory(&self) -> bool {
        self.config.factory
    }

    #[getter]
    fn app_dir(&self) -> Option<&str> {
        self.config.app_dir.as_deref()
    }

    #[getter]
    fn lifespan(&self) -> String {
        Config::name_of(self.config.lifespan)
    }

    #[getter]
    fn root_path(&self) -> &str {
        &self.config.root_path
    }

    #[getter]
    fn backend(&self) -> String {
        Config::name_of(self.config.backend)
    }

    #[getter]
    fn model(&self) -> String {
        Config::name_of(self.config.model)
    }

    #[getter]
    #[pyo3(name = "loop")]
    fn event_loop(&self) -> String {
        Config::name_of(self.config.event_loop)
    }

    #[getter]
    fn drain_timeout(&self) -> f64 {
        self.config.drain_timeout.as_secs_f64()
    }

    #[getter]
    fn access_log(&self) -> bool {
        self.config.access_log
    }

    #[getter]
    fn log_level(&self) -> String {
        Config::name_of(self.config.log_level)
    }

    #[getter]
    fn doctor(&self) -> bool {
        self.config.doctor
    }

    /// A sentence for each variable that begins with `M0_` and is no option's.
    #[getter]
    fn strays(&self) -> Vec<String> {
        self.config.strays.clone()
    }
}

/// What decides the model of a process whose applications have these interfaces.
#[must_use]
pub fn process_interface(names: &[String]) -> Interface {
    let each = names.iter().map(|name| match name.as_str() {
        "wsgi" => Interface::Wsgi,
        _ => Interface::Asgi,
    });
    Config::interface_of(&each.collect::<Vec<_>>())
}

/// What every option is given as.
fn text(given: OsString) -> Result<String, Exit> {
    given.into_string().map_err(|given| {
        let shown = given.to_string_lossy();
        Exit::usage(format!("'{shown}' is no UTF-8 text; give one that is"))
    })
}

/// One option's value; anything else than plain values and paths is a `TypeError`.
fn option_value(name: &str, value: &Bound<'_, PyAny>) -> PyResult<OptionValue> {
    if value.is_none() {
        return Ok(OptionValue::None);
    }
    // A bool is an int to Python: it is asked for first.
    if let Ok(value) = value.cast::<PyBool>() {
        return Ok(OptionValue::Bool(value.is_true()));
    }
    if value.is_instance_of::<PyString>() {
        return Ok(OptionValue::Str(text(value.extract()?)?));
    }
    if value.is_instance_of::<PyInt>() {
        // One that 64 bits do not hold is for the option's own parser to refuse.
        let number = value.extract().map(OptionValue::Int);
        return number.or_else(|_| Ok(OptionValue::Str(value.str()?.extract()?)));
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(OptionValue::Float(value.extract()?));
    }
    match value
        .extract::<std::path::PathBuf>()
        .ok()
        .and_then(|path| path.into_os_string().into_string().ok())
    {
        Some(path) => Ok(OptionValue::Str(path)),
        None => Err(PyTypeError::new_err(format!(
            "{name} takes a string, a number, a path, True, False or None"
        ))),
    }
}

/// Adds the version and both classes to the module.
///
/// # Errors
/// What adding a class to a module may raise.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<PyConfig>()?;
    module.add_class::<PyExit>()
}
