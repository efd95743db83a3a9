//! The header is what cbindgen makes of the sources, and says what it must.

use std::env;
use std::fs;
use std::path::Path;

fn header_path() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include/dendro.h")
}

fn made() -> String {
    let directory = env!("CARGO_MANIFEST_DIR");
    let mut config = cbindgen::Config::from_root_or_default(directory);
    assert!(config.include_guard.is_some(), "cbindgen.toml is somewhere else");
    config.after_includes = Some(version());
    let bindings = cbindgen::Builder::new().with_crate(directory).with_config(config).generate();
    let mut text = Vec::new();
    bindings.expect("cbindgen reads the sources").write(&mut text);
    let text = String::from_utf8(text).expect("cbindgen writes UTF-8");
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    lines.join("\n") + "\n"
}

/// The constants of the version, which is that of the package.
fn version() -> String {
    format!(
        "\n/**\n * The version of this header, which is that of the library that it came with.\n */\n\
         #define DENDRO_VERSION \"{}\"\n\
         #define DENDRO_VERSION_MAJOR {}\n\
         #define DENDRO_VERSION_MINOR {}\n\
         #define DENDRO_VERSION_PATCH {}",
        env!("CARGO_PKG_VERSION"),
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR"),
        env!("CARGO_PKG_VERSION_PATCH"),
    )
}

#[test]
fn the_header_in_the_tree_is_what_cbindgen_makes() {
    let made = made();
    if env::var_os("DENDRO_WRITE_HEADER").is_some() {
        fs::write(header_path(), &made).unwrap();
    }
    let kept = fs::read_to_string(header_path()).unwrap();
    assert!(kept == made, "run DENDRO_WRITE_HEADER=1 cargo test -p dendro-capi header");
}

/// The comment and the declaration of each function.
fn functions(header: &str) -> Vec<(&str, &str)> {
    let parts = header.split("/**\n").skip(1).filter_map(|part| part.split_once(" */\n"));
    let ends = parts.map(|(comment, rest)| (comment, rest.split(';').next().unwrap_or_default()));
    ends.filter(|(_, declared)| declared.contains('(') && !declared.contains("struct {")).collect()
}

#[test]
fn every_function_says_what_it_returns_its_errors_and_who_may_call_it() {
    let header = fs::read_to_string(header_path()).unwrap();
    let functions = functions(&header);
    let declared = header.matches(");\n").count();
    assert!(functions.len() > 60 && functions.len() == declared, "{}", functions.len());
    for (comment, declared) in functions {
        for part in [" * Returns: ", " * Errors: ", " * Threads: "] {
            // They return no error.
            let is_exempt = declared.contains("dendro_error_") && part.contains("Errors");
            assert!(is_exempt || comment.contains(part), "{part} is missing of {declared}");
        }
    }
}

#[test]
fn every_function_is_named_in_the_manual_page() {
    let header = fs::read_to_string(header_path()).unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("dendro.3");
    let page = fs::read_to_string(page).unwrap().replace('\\', "");
    for (_, declared) in functions(&header) {
        let name = declared.split('(').next().unwrap_or_default();
        let name = name.rsplit([' ', '*', '\n']).next().unwrap_or_default();
        assert!(page.contains(name), "{name} is not in dendro.3");
    }
}
