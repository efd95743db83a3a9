//! The Python tests, examples and documents.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use crate::interpreter::{interpreter, lay_out, root};

/// Makes a directory with the images of a mirror.
fn lay_out_mirror(dir: &Path) {
    let sets = dendro_images::sets::all().expect("the images can be read");
    let mirror = sets.into_iter().find(|set| set.name.ends_with("-mirror-clean"));
    let members = mirror.expect("there is one").members;
    fs::create_dir(dir).expect("the folder is new");
    for (name, member) in ["one.img", "two.img"].into_iter().zip(members) {
        fs::write(dir.join(name), member).expect("there is room");
    }
}

#[test]
fn the_python_tests_pass() {
    if env::var_os("DENDRO_SKIP_PYTHON").is_some() {
        println!("DENDRO_SKIP_PYTHON is set: the Python tests are left out");
        return;
    }
    let dir = tempfile::tempdir().expect("there is room");
    lay_out(dir.path());
    let mirror = dir.path().join("mirror");
    lay_out_mirror(&mirror);
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
