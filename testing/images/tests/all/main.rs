//! The integration tests of the crate, in one program: each program takes time to link.

mod classics;
mod common;
mod engine_agrees;
mod forged_accounts;
mod forged_lies;
mod forged_log;
mod forged_maps;
mod golden_devices;
mod golden_images;
mod golden_sets;
mod hostile_images;
mod lost_end;
mod rebuild;
mod rebuild_base;
mod rebuild_content;
mod rebuild_log;
