//! Within a crate, imports go one way: modules that use each other in a circle cannot be read,
//! tested or changed one at a time.
//!
//! Each folder is looked at by itself: its modules, with all that lies in them, are the places, and
//! the folder's own file is one more, `self`. A folder may use its modules or be used by them, but
//! not both; what it only passes on (`pub use`) does not count.

use crate::modules::crate_tree::CrateTree;
use crate::workspace::{Package, packages};

/// The circles of a crate, as text.
fn circles(package: &Package) -> String {
    let mut text = String::new();
    for entry in &package.entries {
        for (folder, arrows) in CrateTree::read(entry).arrows() {
            for circle in arrows.circles() {
                text.push_str(&format!("  {}, {folder}:\n{circle}", package.name));
            }
        }
    }
    text
}

#[test]
fn the_modules_of_a_crate_use_each_other_in_one_direction() {
    let mut found = String::new();
    for package in packages() {
        found.push_str(&circles(&package));
    }
    assert!(found.is_empty(), "circles of modules:\n{found}");
}

/// The circles of the root of a crate that consists of this text.
fn circles_of(text: &str) -> Vec<String> {
    CrateTree::parse(text).arrows().values().flat_map(|arrows| arrows.circles()).collect()
}

#[test]
fn a_circle_of_modules_is_found_and_its_arrows_are_named() {
    let circles = circles_of(
        "mod a { use crate::b::B; struct X; } mod b { pub struct B; fn f() { crate::c::f() } }
         mod c { pub fn f() { let x = vec![super::a::X]; } } mod d { use crate::a; }",
    );
    assert_eq!(
        circles,
        ["    a -> b: a names crate::b::B\n    b -> c: b names crate::c::f\n    \
          c -> a: c names super::a::X\n"]
    );
}

#[test]
fn a_circle_through_a_name_that_the_root_passes_on_is_found() {
    let text = "mod a { use crate::B; pub struct A; } mod b { use crate::*; struct B(A); }
                pub use a::A; pub use b::B;";
    assert_eq!(circles_of(text).len(), 1);
}

#[test]
fn a_circle_within_a_folder_or_with_its_own_file_is_found() {
    let within = "mod a { mod b { use super::c::C; } mod c { use super::b; pub struct C; } }";
    assert_eq!(circles_of(within).len(), 1);
    let with_file = "mod a { mod b { pub fn f(a: super::A) {} } struct A; fn g() { b::f(A) } }";
    assert_eq!(circles_of(with_file).len(), 1);
}

#[test]
fn what_goes_one_way_is_no_circle() {
    for text in [
        "mod a { use crate::b::B; use std::a::A; } mod b { pub struct B; }",
        // Passing on is no use.
        "mod a { mod b { use super::A; pub struct B; } pub struct A; pub use b::B; }",
        // Tests may use what they like.
        "mod a { use crate::b::B; } mod b { pub struct B; #[cfg(test)] mod tests { use crate::a; } }",
        "mod a { use crate::b::B; } mod b { pub struct B; #[cfg(test)] use crate::a::{A, C}; }",
        // Nor does a comment count.
        "mod a { use crate::b::B; } /// See [`crate::a::A`].\n mod b { pub struct B; }",
    ] {
        assert_eq!(circles_of(text), Vec::<String>::new(), "{text}");
    }
}
