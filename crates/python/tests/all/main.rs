//! The module, as Python programs use it.

mod interpreter;
mod python;
