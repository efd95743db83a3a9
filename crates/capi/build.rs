//! Names the shared library that programs ask for at run time. Before version 1.0 it changes with
//! the version's second number, as the interface may.

fn main() {
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    let version = if major == "0" { format!("0.{minor}") } else { major.to_owned() };
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdendro.so.{version}");
    println!("cargo::rerun-if-changed=build.rs");
}
