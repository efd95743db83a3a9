//! What the text of a module says of structs: which fields others see, and what has methods that
//! change it.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::tokens::{Path, Tokens, is_for_tests};

/// A field that others than its own module and what lies in that may see.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OpenField {
    /// Its name, or `pub` for one that has none.
    pub(crate) name: String,
    /// Whether it is `pub(super)`: only the folder of its module sees it.
    pub(crate) is_for_folder: bool,
}

/// The open fields of a struct, of which `struct` was read. What a module that is named sees
/// (`pub(in ...)`) is not open.
pub(super) fn open_fields(tokens: &mut Tokens) -> Vec<OpenField> {
    tokens.take_ident();
    tokens.skip_generics();
    if let Some(fields) = tokens.take_group(Delimiter::Parenthesis) {
        return open_fields_in(fields);
    }
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ';' => break,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                return open_fields_in(group.stream());
            }
            _ => {}
        }
    }
    Vec::new()
}

fn open_fields_in(fields: TokenStream) -> Vec<OpenField> {
    let mut tokens = Tokens::new(fields);
    let mut found = Vec::new();
    while tokens.peek().is_some() {
        if !tokens.take_word("pub") {
            tokens.next();
            continue;
        }
        let scope = tokens.take_group(Delimiter::Parenthesis).map(|scope| scope.to_string());
        let is_for_folder = scope.as_deref() == Some("super");
        if is_for_folder || matches!(scope.as_deref(), None | Some("crate")) {
            let name = tokens.take_ident().filter(|_| tokens.take_punct(':'));
            found.push(OpenField { name: name.unwrap_or_else(|| "pub".to_owned()), is_for_folder });
        }
    }
    found
}

/// The type that an `impl`, of which that word was read, has methods for that take `&mut self`.
/// Operators such as `+=` do not count: they are for values.
pub(super) fn changed_type(tokens: &mut Tokens) -> Option<Path> {
    tokens.skip_generics();
    let mut path = take_path(tokens);
    if tokens.take_word("for") {
        if path.last().is_some_and(|name| name.ends_with("Assign")) {
            return None;
        }
        path = take_path(tokens);
    }
    loop {
        match tokens.next()? {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                return has_changing_method(group.stream()).then_some(path);
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => return None,
            _ => {}
        }
    }
}

/// The path of a type or trait, without what is generic about it.
fn take_path(tokens: &mut Tokens) -> Path {
    let mut path = Path::new();
    tokens.take_path_separator();
    while let Some(part) = tokens.take_ident() {
        path.push(part);
        tokens.skip_generics();
        if !tokens.take_path_separator() {
            break;
        }
    }
    path
}

fn has_changing_method(body: TokenStream) -> bool {
    let mut tokens = Tokens::new(body);
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                let attribute = tokens.take_attribute();
                if attribute.is_some_and(|attribute| is_for_tests(&attribute)) {
                    tokens.skip_item();
                }
            }
            TokenTree::Ident(ident) if ident == "fn" => {
                tokens.take_ident();
                tokens.skip_generics();
                if tokens.take_group(Delimiter::Parenthesis).is_some_and(takes_mut_self) {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}

fn takes_mut_self(arguments: TokenStream) -> bool {
    let mut tokens = Tokens::new(arguments);
    let is_reference = tokens.take_punct('&');
    if tokens.take_punct('\'') {
        tokens.take_ident();
    }
    is_reference && tokens.take_word("mut") && tokens.take_word("self")
}
