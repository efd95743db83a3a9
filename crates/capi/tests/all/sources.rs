//! Unsafe code is in one module.

use std::fs;
use std::path::Path;

#[test]
fn only_the_module_raw_has_unsafe_code() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut count = 0;
    for entry in fs::read_dir(sources).unwrap() {
        let path = entry.unwrap().path();
        assert!(path.is_file(), "look into {} too", path.display());
        if path.file_name().is_some_and(|name| name == "raw.rs") {
            continue;
        }
        for line in fs::read_to_string(&path).unwrap().lines() {
            let is_comment = line.trim_start().starts_with("//");
            // What the linker exports: no other library has names that begin with `dendro_`.
            let is_export = line == "#[unsafe(no_mangle)]";
            count += usize::from(is_export);
            let is_safe = !line.contains("unsafe") || is_comment || is_export;
            assert!(is_safe, "{}: {line}", path.display());
        }
    }
    assert!(count > 60, "the sources are somewhere else");
}
