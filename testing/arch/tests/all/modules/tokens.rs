//! Tokens, read from front to back.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path as it is written: `["crate", "error", "Error"]`. The last part is `*` for a glob.
pub(crate) type Path = Vec<String>;

/// Whether what follows exists in tests only.
pub(super) fn is_for_tests(attribute: &TokenStream) -> bool {
    let mut words = Vec::new();
    collect_words(attribute.clone(), &mut words);
    words.first().is_some_and(|word| word == "cfg")
        && words.iter().any(|word| word == "test")
        && !words.iter().any(|word| word == "any" || word == "not")
}

pub(super) fn collect_words(tokens: TokenStream, words: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => words.push(ident.to_string()),
            TokenTree::Group(group) => collect_words(group.stream(), words),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// A sequence of tokens, read from front to back.
pub(super) struct Tokens {
    tokens: Vec<TokenTree>,
    at: usize,
}

impl Tokens {
    pub(super) fn new(tokens: TokenStream) -> Self {
        Self { tokens: tokens.into_iter().collect(), at: 0 }
    }

    /// Reads ahead: what comes next stays what it is.
    pub(super) fn ahead<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> T {
        let at = self.at;
        let result = read(self);
        self.at = at;
        result
    }

    /// Whether the token before the last one that was read is `character`.
    pub(super) fn follows(&self, character: char) -> bool {
        self.at >= 2 && self.is_punct(self.at - 2, character)
    }

    pub(super) fn peek(&self) -> Option<&TokenTree> {
        self.tokens.get(self.at)
    }

    pub(super) fn next(&mut self) -> Option<TokenTree> {
        let token = self.peek().cloned();
        self.at += usize::from(token.is_some());
        token
    }

    pub(super) fn peek_ident(&self) -> Option<String> {
        match self.peek() {
            Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
            _ => None,
        }
    }

    pub(super) fn take_ident(&mut self) -> Option<String> {
        let ident = self.peek_ident();
        self.at += usize::from(ident.is_some());
        ident
    }

    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let is_there = self.peek_ident().is_some_and(|ident| ident == word);
        self.at += usize::from(is_there);
        is_there
    }

    fn is_punct(&self, at: usize, character: char) -> bool {
        matches!(self.tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == character)
    }

    pub(super) fn take_punct(&mut self, character: char) -> bool {
        let is_there = self.is_punct(self.at, character);
        self.at += usize::from(is_there);
        is_there
    }

    pub(super) fn take_path_separator(&mut self) -> bool {
        let is_there = self.is_punct(self.at, ':') && self.is_punct(self.at + 1, ':');
        self.at += if is_there { 2 } else { 0 };
        is_there
    }

    pub(super) fn take_group(&mut self, delimiter: Delimiter) -> Option<TokenStream> {
        match self.peek() {
            Some(TokenTree::Group(group)) if group.delimiter() == delimiter => {
                let stream = group.stream();
                self.at += 1;
                Some(stream)
            }
            _ => None,
        }
    }

    pub(super) fn skip_group(&mut self, delimiter: Delimiter) {
        let _ = self.take_group(delimiter);
    }

    /// Skips `<...>`, if that is next.
    pub(super) fn skip_generics(&mut self) {
        if !self.take_punct('<') {
            return;
        }
        let mut depth = 1;
        while depth > 0 {
            // The `>` of `->` ends nothing.
            if self.take_punct('-') {
                self.take_punct('>');
                continue;
            }
            match self.next() {
                Some(TokenTree::Punct(punct)) if punct.as_char() == '<' => depth += 1,
                Some(TokenTree::Punct(punct)) if punct.as_char() == '>' => depth -= 1,
                Some(_) => {}
                None => return,
            }
        }
    }

    /// What stands in an attribute, of which `#` was read.
    pub(super) fn take_attribute(&mut self) -> Option<TokenStream> {
        self.take_punct('!');
        self.take_group(Delimiter::Bracket)
    }

    /// Skips an item, with the rest of its attributes, to the end of its body or its semicolon.
    /// What is no item (a field, a statement) is not skipped.
    pub(super) fn skip_item(&mut self) {
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
