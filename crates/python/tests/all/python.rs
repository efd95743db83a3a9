//! The Python tests, examples and documents.

use std::process::Command;
use std::{env, fs};

use crate::interpreter::{interpreter, lay_out, root};

#[test]
fn the_python_tests_pass() {
    if env::var_os("DENDRO_SKIP_PYTHON").is_some() {
        println!("DENDRO_SKIP_PYTHON is set: the Python tests are left out");
        return;
    }
    let dir = tempfile::tempdir().expect("there is room");
    lay_out(dir.path());
    let mirror = dir.path().join("mirror");
    fs::create_dir(&mirror).expect("the folder is new");
    dendro_images::sets::lay_out_mirror(&mirror).expect("the images can be read");
    let mut pytest = Command::new(interpreter());
    pytest.args(["-B", "-m", "pytest", "-q", "-rs", "--rootdir"]).arg(root());
    let pytest = pytest.env("PYTHONPATH", dir.path()).env("TMPDIR", dir.path());
    let pytest = pytest.env("DENDRO_MIRROR", &mirror);
    let output = pytest.current_dir(root()).output().expect("the interpreter starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}\n{errors}", output.status);
    println!("{text}");
}
