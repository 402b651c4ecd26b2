//! The native module `m0serve._native`: what the Python side of the package holds in its hands.

mod driver;
mod last_word;
mod listen;
mod service;
mod start;

use pyo3::prelude::*;

/// Fills the module. On a free-threaded interpreter the GIL stays on: nothing here has been tried without it.
#[pymodule(gil_used = true)]
#[pyo3(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    crate::python_config::register(module)?;
    module.add_class::<last_word::LastWord>()?;
    module.add_class::<service::Service>()?;
    module.add_class::<driver::Driver>()
}
