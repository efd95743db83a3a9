//! The integration tests of the crate, in one program: each program takes time to link.

mod doc_tables;
mod golden;
mod hostile_streams;
mod round_trips;
