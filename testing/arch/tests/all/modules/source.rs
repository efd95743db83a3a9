//! What one module declares, imports and names, read from the tokens of its text.
//!
//! No types are known here: only names are read. What a macro builds is seen where its parts stand
//! in the text. Items that exist only in tests (`#[cfg(test)]`) are left out.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::structs::{OpenField, changed_type, open_fields};
use super::tokens::{Path, Tokens, collect_words, is_for_tests};

/// One name that a `use` brings into a module.
pub(crate) struct Import {
    /// The name in the module; `*` for all names of the target.
    pub(crate) name: String,
    pub(crate) target: Path,
    /// Whether it is passed on: `pub use`, with whatever restriction.
    pub(crate) is_export: bool,
}

/// A module that another one declares.
pub(crate) struct Child {
    pub(crate) name: String,
    /// Its text, where it stands in place; otherwise it has a file of its own.
    pub(crate) body: Option<Source>,
}

/// What a module contains.
#[derive(Default)]
pub(crate) struct Source {
    pub(crate) children: Vec<Child>,
    /// Functions, types, constants, traits and macros that it defines.
    pub(crate) items: BTreeSet<String>,
    pub(crate) imports: Vec<Import>,
    /// Paths of two parts and more that its code names.
    pub(crate) paths: BTreeSet<Path>,
    /// Words that it gives to macros outside of functions: names of what these may define.
    pub(crate) macro_words: BTreeSet<String>,
    /// All words of its code but for those of imports.
    pub(crate) words: BTreeSet<String>,
    /// The structs that it defines, with the fields that are not private.
    pub(crate) structs: BTreeMap<String, Vec<OpenField>>,
    /// Types that it gives methods that take `&mut self`.
    pub(crate) changed: BTreeSet<Path>,
}

impl Source {
    /// Reads a module's text.
    pub(crate) fn parse(text: &str) -> Self {
        let tokens: TokenStream = text.parse().expect("sources are Rust");
        let mut source = Self::default();
        source.read(tokens, true);
        source
    }

    /// Reads tokens of the module: of itself, or (`!is_module`) of a body within it.
    fn read(&mut self, tokens: TokenStream, is_module: bool) {
        let mut tokens = Tokens::new(tokens);
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    if tokens.take_attribute().is_some_and(|attribute| is_for_tests(&attribute)) {
                        tokens.skip_item();
                    }
                }
                TokenTree::Group(group) => self.read(group.stream(), false),
                TokenTree::Ident(ident) => match ident.to_string().as_str() {
                    "pub" => {
                        tokens.skip_group(Delimiter::Parenthesis);
                        if tokens.take_word("use") {
                            self.import(&mut tokens, true);
                        }
                    }
                    "use" => self.import(&mut tokens, false),
                    "mod" if is_module => self.declare_module(&mut tokens),
                    word => self.read_word(word, &mut tokens, is_module),
                },
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }

    fn declare_module(&mut self, tokens: &mut Tokens) {
        let Some(name) = tokens.take_ident() else { return };
        let body = tokens.take_group(Delimiter::Brace).map(|tokens| {
            let mut body = Self::default();
            body.read(tokens, true);
            body
        });
        self.children.push(Child { name, body });
    }

    fn read_word(&mut self, word: &str, tokens: &mut Tokens, is_module: bool) {
        const DEFINES: [&str; 8] =
            ["fn", "struct", "enum", "union", "trait", "type", "const", "static"];
        if is_module && DEFINES.contains(&word) {
            if let Some(name) = tokens.peek_ident() {
                if word == "struct" {
                    self.structs.insert(name.clone(), tokens.ahead(open_fields));
                }
                self.items.insert(name);
            }
            return;
        }
        if is_module && word == "macro_rules" {
            tokens.next();
            self.items.extend(tokens.take_ident());
            return;
        }
        // `-> impl` is a type.
        if is_module && word == "impl" && !tokens.follows('>') {
            self.changed.extend(tokens.ahead(changed_type));
        }
        let mut path = vec![word.to_owned()];
        while tokens.take_path_separator() {
            // Anything else is `::<T>`.
            let Some(next) = tokens.take_ident() else { break };
            path.push(next);
        }
        if is_module && tokens.take_punct('!') {
            self.read_macro(tokens);
        }
        self.words.extend(path.iter().cloned());
        if path.len() > 1 {
            self.paths.insert(path);
        }
    }

    /// Reads what a macro is given, of which name and `!` were read.
    fn read_macro(&mut self, tokens: &mut Tokens) {
        if let Some(TokenTree::Group(group)) = tokens.next() {
            let mut words = Vec::new();
            collect_words(group.stream(), &mut words);
            self.macro_words.extend(words);
            self.read(group.stream(), false);
        }
    }

    /// Reads the tree of a `use` up to its semicolon.
    fn import(&mut self, tokens: &mut Tokens, is_export: bool) {
        tokens.take_path_separator();
        self.import_tree(tokens, &[], is_export);
    }

    fn import_tree(&mut self, tokens: &mut Tokens, prefix: &[String], is_export: bool) {
        let mut target = prefix.to_vec();
        loop {
            if let Some(group) = tokens.take_group(Delimiter::Brace) {
                let mut group = Tokens::new(group);
                while group.peek().is_some() {
                    self.import_tree(&mut group, &target, is_export);
                    group.take_punct(',');
                }
                return;
            }
            if tokens.take_punct('*') {
                target.push("*".to_owned());
                self.imports.push(Import { name: "*".to_owned(), target, is_export });
                return;
            }
            let Some(part) = tokens.take_ident() else { return };
            if part != "self" || target.is_empty() {
                target.push(part);
            }
            if !tokens.take_path_separator() {
                break;
            }
        }
        let own_name = target.last().cloned().unwrap_or_default();
        let name = if tokens.take_word("as") {
            // `as _` gives no name.
            tokens.take_ident().unwrap_or_default()
        } else {
            own_name
        };
        self.imports.push(Import { name, target, is_export });
    }
}
