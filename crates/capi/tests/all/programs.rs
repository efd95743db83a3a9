//! C programs do what they say, with their memory watched.

use std::path::Path;
use std::process::Command;

use crate::cc::{Link, Watch, compile, libraries, root, run, soname};

fn text(command: &mut Command) -> String {
    String::from_utf8(run(command).stdout).expect("they write UTF-8")
}

/// Compiles a program and runs it with an argument.
fn watched(source: &str, directory: &Path, argument: &Path) -> String {
    let watch = Watch::best(directory);
    let program = compile(source, directory, Link::Shared, watch.flags());
    text(watch.command(&program).arg(argument))
}

#[test]
fn the_queue_keeps_what_was_pushed_from_one_run_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let watch = Watch::best(dir.path());
    let program = compile("examples/queue.c", dir.path(), Link::Shared, watch.flags());
    let image = dir.path().join("queue.img");
    let first = text(watch.command(&program).arg(&image));
    assert_eq!(first, "0 messages wait\n3 wait now, whatever happens\n");
    // A volume that was there is opened as the device of a set.
    let second = text(watch.command(&program).arg(&image));
    let lines: Vec<_> = second.lines().collect();
    assert_eq!((lines[0], lines[2]), ("3 messages wait", "5 wait now, whatever happens"));
    assert!(lines[1].starts_with("the first was: message 0 of process "), "{second}");
    let third = text(watch.command(&program).arg(&image));
    assert!(third.contains("5 messages wait\nthe first was: message 1 of"), "{third}");
}

#[test]
fn the_files_of_two_versions_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("files.img");
    let shown = watched("examples/files.c", dir.path(), &image);
    let wanted = "now:\n    13  notes/yesterday: written again\n\
                  before:\n    13  notes/old: to be removed\n     7  notes/today: written\n";
    assert_eq!(shown, wanted);
}

#[test]
fn errors_have_the_numbers_that_the_header_says() {
    let dir = tempfile::tempdir().unwrap();
    watched("tests/c/errors.c", dir.path(), dir.path());
}

#[test]
fn versions_are_compared_measured_and_received() {
    let dir = tempfile::tempdir().unwrap();
    watched("tests/c/versions.c", dir.path(), dir.path());
}

#[test]
fn the_devices_of_a_mirror_are_named_and_may_be_absent() {
    let dir = tempfile::tempdir().unwrap();
    dendro_images::sets::lay_out_mirror(dir.path()).unwrap();
    watched("tests/c/devices.c", dir.path(), dir.path());
}

#[test]
fn threads_share_handles() {
    let dir = tempfile::tempdir().unwrap();
    watched("tests/c/threads.c", dir.path(), dir.path());
}

#[test]
fn a_program_with_the_static_library_runs_without_the_shared_one() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile("examples/queue.c", dir.path(), Link::Static, &[]);
    let used = text(Command::new("ldd").arg(&program));
    assert!(!used.contains("libdendro"), "{used}");
    let said = text(Command::new(&program).arg(dir.path().join("queue.img")));
    assert_eq!(said, "0 messages wait\n3 wait now, whatever happens\n");
}

#[test]
fn what_is_installed_is_found_by_pkg_config() {
    let dir = tempfile::tempdir().unwrap();
    let mut make = Command::new("make");
    make.args(["--silent", "--no-print-directory", "install-lib-files", "PREFIX=/usr"]);
    make.arg(format!("LIBDENDRO={}", libraries().display()));
    make.arg(format!("DESTDIR={}", dir.path().display()));
    run(make.current_dir(root().join("../..")));
    let lib = dir.path().join("usr/lib");
    assert!(lib.join(soname()).exists(), "the library is not there by its soname");
    assert!(dir.path().join("usr/share/man/man3/dendro.3").exists());
    let mut pkg_config = Command::new("pkg-config");
    pkg_config.args(["--cflags", "--libs", "dendro"]).env("PKG_CONFIG_SYSROOT_DIR", dir.path());
    pkg_config.env("PKG_CONFIG_PATH", lib.join("pkgconfig"));
    pkg_config.env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1");
    pkg_config.env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1");
    let flags = match pkg_config.output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        }
        Err(_) => {
            println!("there is no pkg-config here");
            return;
        }
    };
    let program = dir.path().join("queue");
    let mut cc = Command::new("cc");
    cc.arg(root().join("examples/queue.c")).arg("-o").arg(&program);
    run(cc.args(flags.split_whitespace()));
    let mut queue = Command::new(&program);
    queue.env("LD_LIBRARY_PATH", &lib).arg(dir.path().join("queue.img"));
    assert_eq!(text(&mut queue), "0 messages wait\n3 wait now, whatever happens\n");
}

#[test]
fn what_the_debian_packages_have_is_enough_for_a_program() {
    let has = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    let tools = ["dpkg-shlibdeps", "dpkg-deb", "dpkg-architecture", "pkg-config"];
    if let Some(tool) = tools.iter().find(|tool| !has(tool)) {
        println!("there is no {tool} here");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut make = Command::new(root().join("../../packaging/make-deb-lib"));
    make.env("DEB_COMPRESSION", "none");
    let made = text(make.arg(libraries()).arg(dir.path().join("out")));
    let packages: Vec<&str> = made.lines().collect();
    let system = dir.path().join("system");
    for package in &packages {
        run(Command::new("dpkg-deb").arg("--extract").arg(package).arg(&system));
    }
    let field = |package: &str, name: &str| {
        text(Command::new("dpkg-deb").args(["--field", package, name])).trim().to_owned()
    };
    let [shared, dev] = packages[..] else { panic!("{packages:?}") };
    let name = field(shared, "Package");
    assert_eq!(soname(), format!("libdendro.so.{}", name.trim_start_matches("libdendro")));
    assert!(field(shared, "Depends").contains("libc6 (>="), "{}", field(shared, "Depends"));
    assert_eq!(field(dev, "Package"), "libdendro-dev");
    assert_eq!(field(dev, "Depends"), format!("{name} (= {})", env!("CARGO_PKG_VERSION")));
    let control = text(Command::new("dpkg-deb").args(["--info", shared, "shlibs"]));
    assert_eq!(
        control,
        format!("libdendro {} {name} (>= {})\n", &name[9..], field(dev, "Version"))
    );
    for path in ["share/man/man3/dendro.3.gz", "include/dendro.h"] {
        assert!(system.join("usr").join(path).exists(), "{path}");
    }

    let multiarch = text(Command::new("dpkg-architecture").arg("-qDEB_HOST_MULTIARCH"));
    let lib = system.join("usr/lib").join(multiarch.trim());
    let mut pkg_config = Command::new("pkg-config");
    pkg_config.args(["--cflags", "--libs", "dendro"]).env("PKG_CONFIG_SYSROOT_DIR", &system);
    pkg_config.env("PKG_CONFIG_PATH", lib.join("pkgconfig"));
    pkg_config.env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1");
    pkg_config.env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1");
    let flags = text(&mut pkg_config);
    let example = system.join("usr/share/doc/libdendro-dev/examples/queue.c");
    for (name, library) in [("shared", None), ("static", Some(lib.join("libdendro.a")))] {
        let program = dir.path().join(name);
        let mut cc = Command::new("cc");
        cc.arg(&example).arg("-o").arg(&program);
        match &library {
            None => cc.args(flags.split_whitespace()),
            Some(library) => {
                cc.arg("-I").arg(system.join("usr/include")).arg(library);
                cc.args(["-pthread", "-ldl", "-lm"])
            }
        };
        run(&mut cc);
        let mut queue = Command::new(&program);
        queue.arg(dir.path().join(format!("{name}.img")));
        if library.is_none() {
            queue.env("LD_LIBRARY_PATH", &lib);
        }
        assert_eq!(text(&mut queue), "0 messages wait\n3 wait now, whatever happens\n", "{name}");
    }
}

#[test]
fn the_header_is_one_of_cplusplus_too() {
    let found = Command::new("c++").arg("--version").output();
    if !found.is_ok_and(|output| output.status.success()) {
        println!("there is no C++ compiler here");
        return;
    }
    let header = root().join("include/dendro.h");
    let mut cc = Command::new("c++");
    run(cc
        .args(["-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++"])
        .arg(header));
}
