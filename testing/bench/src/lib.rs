//! What the benchmarks share.

pub mod workload;
