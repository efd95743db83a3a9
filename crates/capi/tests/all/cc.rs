//! Compiles C programs with the library, and runs them.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Which library a program gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Shared,
    Static,
}

/// Where this crate is.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder into which cargo has put the libraries.
pub(crate) fn libraries() -> PathBuf {
    let program = env::current_exe().expect("a process knows its program");
    program.parent().expect("it lies in a folder").to_owned()
}

/// The name by which programs ask for the shared library.
pub(crate) fn soname() -> String {
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    match major {
        "0" => format!("libdendro.so.0.{minor}"),
        _ => format!("libdendro.so.{major}"),
    }
}

/// Runs a command, which must succeed.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    output
}

/// Compiles the program `source` of this crate into `directory`, and returns it.
pub(crate) fn compile(source: &str, directory: &Path, link: Link, flags: &[&str]) -> PathBuf {
    let source = root().join(source);
    let program = directory.join(source.file_stem().expect("it has a name"));
    let mut cc = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    cc.args(flags).arg("-I").arg(root().join("include")).arg(source).arg("-o").arg(&program);
    match link {
        Link::Shared => {
            let here = directory.join(soname());
            if !here.exists() {
                symlink(libraries().join("libdendro.so"), here).expect("the folder is new");
            }
            cc.arg("-L").arg(libraries()).arg("-ldendro");
            cc.arg(format!("-Wl,-rpath,{}", directory.display()));
        }
        Link::Static => {
            cc.arg(libraries().join("libdendro.a"));
        }
    }
    run(cc.args(["-pthread", "-ldl", "-lm"]));
    program
}

/// How the memory accesses of programs are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    Valgrind,
    AddressSanitizer,
    /// This machine has neither.
    Nothing,
}

impl Watch {
    /// What this machine has. `DENDRO_WATCH=asan` prefers the other one.
    pub(crate) fn best(directory: &Path) -> Self {
        let succeeds = |command: &mut Command| command.output().is_ok_and(|of| of.status.success());
        let wants_other = env::var_os("DENDRO_WATCH").is_some_and(|name| name == "asan");
        if !wants_other && succeeds(Command::new("valgrind").args(["--quiet", "true"])) {
            return Self::Valgrind;
        }
        let (source, program) = (directory.join("empty.c"), directory.join("empty"));
        fs::write(&source, "int main(void) { return 0; }\n").expect("the folder is new");
        let mut cc = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
        cc.args(Self::AddressSanitizer.flags()).arg(&source).arg("-o").arg(&program);
        match succeeds(&mut cc) && succeeds(&mut Command::new(&program)) {
            true => Self::AddressSanitizer,
            false => {
                println!("neither valgrind nor AddressSanitizer is here: memory is not watched");
                Self::Nothing
            }
        }
    }

    /// What a program is compiled with.
    pub(crate) const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::AddressSanitizer => {
                &["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
            }
            Self::Valgrind | Self::Nothing => &["-g", "-O1"],
        }
    }

    /// The command that runs a program.
    pub(crate) fn command(self, program: &Path) -> Command {
        match self {
            Self::Valgrind => {
                let mut command = Command::new("valgrind");
                command.args(["--quiet", "--error-exitcode=99", "--leak-check=full"]);
                command.args(["--errors-for-leak-kinds=definite,possible", "--fair-sched=try"]);
                let known = root().join("tests/c/valgrind.supp");
                command.arg(format!("--suppressions={}", known.display()));
                command.arg(program);
                command
            }
            Self::AddressSanitizer | Self::Nothing => Command::new(program),
        }
    }
}
