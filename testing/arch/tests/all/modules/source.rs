//! What one module declares, imports and names, read from the tokens of its text.
//!
//! No types are known here: only names are read. What a macro builds is seen where its parts stand
//! in the text. Items that exist only in tests (`#[cfg(test)]`) are left out.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path as it is written: `["crate", "error", "Error"]`. The last part is `*` for a glob.
pub(crate) type Path = Vec<String>;

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
                self.items.insert(name);
            }
            return;
        }
        if is_module && word == "macro_rules" {
            tokens.next();
            self.items.extend(tokens.take_ident());
            return;
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

/// Whether what follows exists in tests only.
fn is_for_tests(attribute: &TokenStream) -> bool {
    let mut words = Vec::new();
    collect_words(attribute.clone(), &mut words);
    words.first().is_some_and(|word| word == "cfg")
        && words.iter().any(|word| word == "test")
        && !words.iter().any(|word| word == "any" || word == "not")
}

fn collect_words(tokens: TokenStream, words: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => words.push(ident.to_string()),
            TokenTree::Group(group) => collect_words(group.stream(), words),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// A sequence of tokens, read from front to back.
struct Tokens {
    tokens: Vec<TokenTree>,
    at: usize,
}

impl Tokens {
    fn new(tokens: TokenStream) -> Self {
        Self { tokens: tokens.into_iter().collect(), at: 0 }
    }

    fn peek(&self) -> Option<&TokenTree> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<TokenTree> {
        let token = self.peek().cloned();
        self.at += usize::from(token.is_some());
        token
    }

    fn peek_ident(&self) -> Option<String> {
        match self.peek() {
            Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
            _ => None,
        }
    }

    fn take_ident(&mut self) -> Option<String> {
        let ident = self.peek_ident();
        self.at += usize::from(ident.is_some());
        ident
    }

    fn take_word(&mut self, word: &str) -> bool {
        let is_there = self.peek_ident().is_some_and(|ident| ident == word);
        self.at += usize::from(is_there);
        is_there
    }

    fn is_punct(&self, at: usize, character: char) -> bool {
        matches!(self.tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == character)
    }

    fn take_punct(&mut self, character: char) -> bool {
        let is_there = self.is_punct(self.at, character);
        self.at += usize::from(is_there);
        is_there
    }

    fn take_path_separator(&mut self) -> bool {
        let is_there = self.is_punct(self.at, ':') && self.is_punct(self.at + 1, ':');
        self.at += if is_there { 2 } else { 0 };
        is_there
    }

    fn take_group(&mut self, delimiter: Delimiter) -> Option<TokenStream> {
        match self.peek() {
            Some(TokenTree::Group(group)) if group.delimiter() == delimiter => {
                let stream = group.stream();
                self.at += 1;
                Some(stream)
            }
            _ => None,
        }
    }

    fn skip_group(&mut self, delimiter: Delimiter) {
        let _ = self.take_group(delimiter);
    }

    /// What stands in an attribute, of which `#` was read.
    fn take_attribute(&mut self) -> Option<TokenStream> {
        self.take_punct('!');
        self.take_group(Delimiter::Bracket)
    }

    /// Skips an item, with the rest of its attributes, to the end of its body or its semicolon.
    /// What is no item (a field, a statement) is not skipped.
    fn skip_item(&mut self) {
        const BEGIN: [&str; 14] = [
            "use",
            "mod",
            "fn",
            "struct",
            "enum",
            "union",
            "impl",
            "trait",
            "type",
            "const",
            "static",
            "unsafe",
            "extern",
            "macro_rules",
        ];
        while self.take_punct('#') {
            self.take_attribute();
        }
        let begin = self.at;
        if self.take_word("pub") {
            self.skip_group(Delimiter::Parenthesis);
        }
        let Some(word) = self.peek_ident().filter(|word| BEGIN.contains(&word.as_str())) else {
            self.at = begin;
            return;
        };
        while let Some(token) = self.next() {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ';' => return,
                TokenTree::Group(group)
                    if group.delimiter() == Delimiter::Brace && word != "use" =>
                {
                    return;
                }
                _ => {}
            }
        }
    }
}
