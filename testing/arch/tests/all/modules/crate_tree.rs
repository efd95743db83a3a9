//! The modules of a crate as a tree, and the arrows between them.
//!
//! An arrow goes from the module whose text names something to the module that defines it. If the
//! name is found through a third module that passes it on, an arrow goes to that one too, unless it
//! encloses the module that names it: a folder's list of what it passes on does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path as FilePath, PathBuf};

use super::graph::Arrows;
use super::source::{Child, Import, Source};
use super::structs::OpenField;
use super::tokens::Path;

/// Names lead from import to import; no chain is longer.
const MAX_STEPS: usize = 32;

/// A module; the crate's root is the first.
type Id = usize;

struct Module {
    /// `["file", "transfer"]`; empty for the root.
    path: Vec<String>,
    parent: Option<Id>,
    children: BTreeMap<String, Id>,
    source: Source,
}

/// All modules of one crate.
pub(crate) struct CrateTree {
    modules: Vec<Module>,
}

/// What a path means.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Meaning {
    Module(Id),
    /// An item, and the module that defines it.
    Item(Id),
}

impl Meaning {
    fn module(self) -> Id {
        match self {
            Self::Module(id) | Self::Item(id) => id,
        }
    }
}

/// A module that uses another one, and the path in its text that says so.
struct Use {
    from: Id,
    to: Id,
    path: String,
}

impl CrateTree {
    /// Reads the crate whose root is the file `entry`.
    pub(crate) fn read(entry: &FilePath) -> Self {
        let mut tree = Self { modules: Vec::new() };
        let directory = entry.parent().expect("a file lies in a directory").to_path_buf();
        tree.add(None, Vec::new(), read_file(entry), &directory);
        tree
    }

    /// A crate whose modules are given as one text, each with a body in place.
    pub(crate) fn parse(text: &str) -> Self {
        let mut tree = Self { modules: Vec::new() };
        tree.add(None, Vec::new(), Source::parse(text), FilePath::new("nowhere"));
        tree
    }

    /// Adds a module and those that it declares, whose files lie in `directory`.
    fn add(
        &mut self,
        parent: Option<Id>,
        path: Vec<String>,
        mut source: Source,
        directory: &FilePath,
    ) -> Id {
        let id = self.modules.len();
        let declared = std::mem::take(&mut source.children);
        self.modules.push(Module { path: path.clone(), parent, children: BTreeMap::new(), source });
        for Child { name, body } in declared {
            let source = body.unwrap_or_else(|| read_module(directory, &name));
            let mut path = path.clone();
            path.push(name.clone());
            let child = self.add(Some(id), path, source, &directory.join(&name));
            self.modules[id].children.insert(name, child);
        }
        id
    }

    /// The arrows between the modules of each folder, by the folder's name. The folder's own file
    /// is one of them, named `self`.
    pub(crate) fn arrows(&self) -> BTreeMap<String, Arrows> {
        let uses = self.uses();
        let folders = (0..self.modules.len()).filter(|id| !self.modules[*id].children.is_empty());
        folders.map(|folder| (self.name(folder), self.arrows_within(folder, &uses))).collect()
    }

    /// The structs with fields that the whole crate sees, or others, although methods take them as
    /// `&mut self`: each with these fields.
    pub(crate) fn open_structs(&self) -> BTreeMap<String, Vec<&str>> {
        let mut changed = BTreeSet::new();
        for (id, module) in self.modules.iter().enumerate() {
            for path in &module.source.changed {
                if let Some(Meaning::Item(home)) = self.resolve(id, path, &mut BTreeSet::new(), 0) {
                    changed.insert((home, path.last().expect("a path has parts").as_str()));
                }
            }
        }
        let mut found = BTreeMap::new();
        for (home, name) in changed {
            let Module { path, source, .. } = &self.modules[home];
            // The folder of the modules at the top is the crate.
            let is_open = |field: &&OpenField| !field.is_for_folder || path.len() <= 1;
            let fields = source.structs.get(name).into_iter().flatten().filter(is_open);
            let fields: Vec<_> = fields.map(|field| field.name.as_str()).collect();
            if !fields.is_empty() {
                let path = path.iter().map(String::as_str).chain([name]).collect::<Vec<_>>();
                found.insert(path.join("::"), fields);
            }
        }
        found
    }

    fn arrows_within(&self, folder: Id, uses: &[Use]) -> Arrows {
        let mut arrows = Arrows::default();
        for Use { from, to, path } in uses {
            if let (Some(tail), Some(head)) = (self.room(folder, *from), self.room(folder, *to))
                && tail != head
            {
                arrows.add(&tail, &head, &format!("{} names {path}", self.name(*from)));
            }
        }
        arrows
    }

    /// Which module of a folder another one lies in.
    fn room(&self, folder: Id, module: Id) -> Option<String> {
        let rest = self.modules[module].path.strip_prefix(&self.modules[folder].path[..])?;
        Some(rest.first().map_or_else(|| "self".to_owned(), Clone::clone))
    }

    fn name(&self, module: Id) -> String {
        let path = &self.modules[module].path;
        if path.is_empty() { "the root".to_owned() } else { path.join("::") }
    }

    fn uses(&self) -> Vec<Use> {
        let mut uses = Vec::new();
        for (from, module) in self.modules.iter().enumerate() {
            let Source { imports, paths, words, .. } = &module.source;
            for import in imports.iter().filter(|import| self.counts(from, import)) {
                self.add_uses(from, &import.target, &mut uses);
                if import.name == "*" {
                    for word in words {
                        let mut path = import.target.clone();
                        path.pop();
                        path.push(word.clone());
                        self.add_uses(from, &path, &mut uses);
                    }
                }
            }
            for path in paths {
                self.add_uses(from, path, &mut uses);
            }
        }
        uses
    }

    /// Whether an import is a use. A folder that passes on what its modules define does not use
    /// it, unless its own code names it.
    fn counts(&self, module: Id, import: &Import) -> bool {
        if !import.is_export || self.modules[module].source.words.contains(&import.name) {
            return true;
        }
        let mut through = BTreeSet::new();
        self.resolve(module, &import.target, &mut through, 0)
            .is_none_or(|meaning| !self.encloses(module, meaning.module()))
    }

    fn add_uses(&self, from: Id, path: &Path, uses: &mut Vec<Use>) {
        let mut through = BTreeSet::new();
        let Some(meaning) = self.resolve(from, path, &mut through, 0) else { return };
        through.retain(|module| !self.encloses(*module, from));
        // A folder named as such (`super::folder`) is no use of the one who stands in it.
        if !matches!(meaning, Meaning::Module(module) if self.encloses(module, from)) {
            through.insert(meaning.module());
        }
        let path = path.join("::");
        uses.extend(through.into_iter().map(|to| Use { from, to, path: path.clone() }));
    }

    /// Whether `inner` is `outer` or lies in it.
    fn encloses(&self, outer: Id, inner: Id) -> bool {
        self.modules[inner].path.starts_with(&self.modules[outer].path)
    }

    /// What `path`, written in `module`, means; `None` if it is none of this crate. Modules that
    /// pass a name on are added to `through`.
    fn resolve(
        &self,
        module: Id,
        path: &[String],
        through: &mut BTreeSet<Id>,
        steps: usize,
    ) -> Option<Meaning> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => 0,
            "self" => module,
            "super" => self.modules[module].parent?,
            _ => match self.lookup(module, first, through, steps)? {
                Meaning::Module(id) => id,
                item @ Meaning::Item(_) => return Some(item),
            },
        };
        while let Some((name, after)) = rest.split_first() {
            rest = after;
            at = match name.as_str() {
                "*" => return Some(Meaning::Module(at)),
                "super" => self.modules[at].parent?,
                _ => match self.lookup(at, name, through, steps) {
                    Some(Meaning::Module(id)) => id,
                    Some(item) => return Some(item),
                    None => return self.passes_on_or_makes(at, name).then_some(Meaning::Item(at)),
                },
            };
        }
        Some(Meaning::Module(at))
    }

    /// Whether a module has a name that it does not define in plain text: of another crate, or made
    /// by a macro.
    fn passes_on_or_makes(&self, module: Id, name: &str) -> bool {
        let Source { imports, macro_words, .. } = &self.modules[module].source;
        macro_words.contains(name) || imports.iter().any(|import| import.name == name)
    }

    /// What a name means in a module.
    fn lookup(
        &self,
        module: Id,
        name: &str,
        through: &mut BTreeSet<Id>,
        steps: usize,
    ) -> Option<Meaning> {
        if steps > MAX_STEPS {
            return None;
        }
        let Module { children, source, .. } = &self.modules[module];
        if let Some(child) = children.get(name) {
            return Some(Meaning::Module(*child));
        }
        if source.items.contains(name) {
            return Some(Meaning::Item(module));
        }
        let named = source.imports.iter().filter(|import| import.name == name);
        let globs = source.imports.iter().filter(|import| import.name == "*");
        for Import { name: imported, target, .. } in named.chain(globs) {
            let mut target = target.clone();
            // `use serde::Serialize` in this crate is no path within it.
            if target.first().is_some_and(|first| first == name) && target.len() == 1 {
                continue;
            }
            if imported == "*" {
                target.pop();
                target.push(name.to_owned());
            }
            let mut found_through = BTreeSet::new();
            if let Some(meaning) = self.resolve(module, &target, &mut found_through, steps + 1) {
                through.extend(found_through);
                through.insert(module);
                return Some(meaning);
            }
        }
        None
    }
}

fn read_file(path: &FilePath) -> Source {
    Source::parse(&fs::read_to_string(path).expect("sources are UTF-8"))
}

fn read_module(directory: &FilePath, name: &str) -> Source {
    let candidates: [PathBuf; 2] =
        [directory.join(format!("{name}.rs")), directory.join(name).join("mod.rs")];
    let file = candidates.iter().find(|path| path.exists());
    read_file(file.unwrap_or_else(|| panic!("{} has no file", directory.join(name).display())))
}
