//! An interpreter, and the package laid out for it.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Where this crate is.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder into which cargo has put the module.
fn libraries() -> PathBuf {
    let program = env::current_exe().expect("a process knows its program");
    program.parent().expect("it lies in a folder").to_owned()
}

/// The interpreter of the virtual environment that `make python-env` makes.
pub(crate) fn interpreter() -> PathBuf {
    let libraries = libraries();
    let target = libraries.ancestors().nth(2).expect("cargo has a target folder");
    let made = target.join("python-env/bin/python");
    let python = env::var_os("DENDRO_PYTHON").map_or(made, PathBuf::from);
    assert!(
        python.exists(),
        "there is no {}: `make python-env` makes it; DENDRO_PYTHON names another interpreter that \
         has pytest, and DENDRO_SKIP_PYTHON=1 leaves these tests out",
        python.display()
    );
    python
}

/// Lays the package out in `dir` as it is installed.
pub(crate) fn lay_out(dir: &Path) {
    let package = dir.join("dendrofs");
    fs::create_dir(&package).expect("the folder is new");
    for entry in fs::read_dir(root().join("python/dendrofs")).expect("the package is there") {
        let path = entry.expect("a folder can be read").path();
        if path.is_file() {
            let name = path.file_name().expect("a file has a name");
            symlink(&path, package.join(name)).expect("the folder is new");
        }
    }
    let module = libraries().join("libdendrofs_native.so");
    assert!(module.exists(), "{}: cargo has not built it", module.display());
    symlink(module, package.join("_native.abi3.so")).expect("the folder is new");
}
