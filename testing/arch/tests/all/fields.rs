//! What methods change has private fields: a field that others can set has no owner, and nobody
//! upholds what the methods rely on.

use std::collections::BTreeMap;

use crate::modules::crate_tree::CrateTree;
use crate::workspace::packages;

/// Structs with fields that others see, although they have methods that take `&mut self`: the
/// crate, the struct, and why.
const ALLOWED: [(&str, &str, &str); 8] = [
    (
        "dendro-control",
        "messages::coalescing::Coalesced",
        "a reply of the control protocol; the replies to a series of requests are added up",
    ),
    ("dendro-daemon", "options::MountOptions", "options, which are set by their names"),
    (
        "dendro-disk",
        "versions::table::entries::VersionTable",
        "three counters, which a disk reads from its records as it reads the versions; it checks \
         the table as a whole",
    ),
    ("dendro-fs", "repair::Repaired", "a report, which is added to while the repair goes on"),
    (
        "dendro-policy",
        "segment::Segment",
        "what a policy is told of a segment; who simulates segments keeps it up to date",
    ),
    ("dendro-set", "set::State", "what the one lock of a set guards, for all modules of the set"),
    ("dendro-set", "sources::Sources", "one number besides, which nothing in it depends on"),
    ("dendro-stream", "item::Counts", "counts of a stream's items, which are all that it has"),
];

#[test]
fn what_methods_change_has_private_fields() {
    let mut found = String::new();
    let mut unused: Vec<_> = ALLOWED.iter().map(|(package, name, _)| (*package, *name)).collect();
    for package in packages() {
        for entry in &package.entries {
            for (name, fields) in CrateTree::read(entry).open_structs() {
                if ALLOWED.iter().any(|(of, allowed, _)| *of == package.name && *allowed == name) {
                    unused.retain(|of| *of != (&*package.name, &*name));
                } else {
                    let fields = fields.join(", ");
                    found.push_str(&format!("  {}, {name}: {fields}\n", package.name));
                }
            }
        }
    }
    assert!(
        found.is_empty(),
        "fields that others see, of structs with methods that take `&mut self`:\n{found}"
    );
    assert!(unused.is_empty(), "no longer needed in the list of what is allowed: {unused:?}");
}

/// The open structs of a crate that consists of this text.
fn open_structs_of(text: &str) -> BTreeMap<String, Vec<String>> {
    let tree = CrateTree::parse(text);
    let own = |fields: Vec<&str>| fields.into_iter().map(str::to_owned).collect();
    tree.open_structs().into_iter().map(|(name, fields)| (name, own(fields))).collect()
}

#[test]
fn fields_that_others_see_are_found() {
    let changes =
        "impl<'a, T: Fn() -> u32> A<'a, T> where T: Copy { fn f<U>(&'a mut self, u: U) {} }";
    for (fields, open) in [
        ("{ a: u32, pub(crate) b: HashMap<u32, u32>, pub c: (u32, u32) }", vec!["b", "c"]),
        ("{ #[serde(skip)] /// Why.\n pub(crate) a: u32 }", vec!["a"]),
        ("(u32, pub(crate) Vec<u32>);", vec!["pub"]),
    ] {
        let text = format!("mod m {{ struct A<'a, T: Fn(u32) -> u32> {fields} {changes} }}");
        let expected =
            BTreeMap::from([("m::A".to_owned(), open.into_iter().map(str::to_owned).collect())]);
        assert_eq!(open_structs_of(&text), expected, "{text}");
    }
    for text in [
        // Methods in another module, of a type that a folder passes on.
        "mod m { mod a { pub struct A { pub(crate) a: u32 } } pub(crate) use a::A; }
         mod n { use crate::m::A; impl A { fn f(&mut self) {} } }",
        "mod m { mod a { pub struct A { pub(crate) a: u32 } impl Drop for A { fn drop(&mut self) {} } } }",
    ] {
        assert_eq!(open_structs_of(text).into_keys().collect::<Vec<_>>(), ["m::a::A"], "{text}");
    }
    // The folder of a module at the top is the crate.
    let text = "mod m { struct A { pub(super) a: u32 } impl A { fn f(&mut self) {} } }";
    assert_eq!(open_structs_of(text).len(), 1);
}

#[test]
fn what_has_an_owner_and_what_is_only_a_value_is_not_found() {
    for text in [
        "mod m { struct A { a: u32 } impl A { fn f(&mut self) {} } }",
        "mod m { mod a { struct A { pub(super) a: u32 } impl A { fn f(&mut self) {} } } }",
        "mod m { struct A { pub a: u32 } impl A { fn f(&self, b: &mut u32) {} fn g(mut self) {} } }",
        "mod m { struct A { pub a: u32 } impl AddAssign for A { fn add_assign(&mut self, b: A) {} } }",
        "mod m { struct A { pub a: u32 } fn f() -> impl A { struct B; impl B { fn f(&mut self) {} } } }",
        // Another struct of that name.
        "mod m { struct A { pub a: u32 } } mod n { struct A; impl A { fn f(&mut self) {} } }",
        "mod m { struct A { pub a: u32 } #[cfg(test)] impl A { fn f(&mut self) {} } }",
    ] {
        assert!(open_structs_of(text).is_empty(), "{text}");
    }
}
