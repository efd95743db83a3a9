//! What is agreed on before data. A [`Negotiation`] takes one option after the other, and says what
//! is to be answered and what comes next. It does no I/O.

use std::sync::Arc;

use zerocopy::IntoBytes;
use zerocopy::big_endian::{U16, U32, U64};

use crate::export::{Export, Exports};
use crate::options::{self, Malformed};
use crate::wire::{
    ALLOCATION_CONTEXT, ALLOCATION_CONTEXT_ID, Greeting, MAX_LEN_BYTES, OPTION_MAGIC,
    OPTION_REPLY_MAGIC, OptionReplyHeader, SERVER_MAGIC, handshake, info, option, option_reply,
    transmission,
};

/// The zeros that follow the reply to `EXPORT_NAME`, unless the client wants none.
const PADDING: [u8; 124] = [0; 124];

/// What a server says first.
pub(crate) fn greeting() -> Greeting {
    Greeting {
        server_magic: U64::new(SERVER_MAGIC),
        option_magic: U64::new(OPTION_MAGIC),
        flags: U16::new(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES),
    }
}

/// What a client and the server have agreed on for data.
#[derive(Clone)]
pub(crate) struct Agreed {
    pub(crate) export: Arc<dyn Export>,
    pub(crate) has_structured_replies: bool,
    /// Whether block status can be asked for.
    pub(crate) has_block_status: bool,
}

/// What comes after an option.
pub(crate) enum Next {
    Option,
    /// The connection is encrypted from here on.
    StartTls,
    Data(Agreed),
    End,
}

/// Whether a connection is, can be or must be encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    /// The server has no certificates.
    Never,
    /// It has, and the client has not begun.
    Awaited,
    Done,
}

/// The negotiation of one connection.
pub(crate) struct Negotiation<'a> {
    exports: &'a dyn Exports,
    encryption: Encryption,
    wants_no_zeroes: bool,
    has_structured_replies: bool,
    /// The export for which block status was chosen.
    block_status_of: Option<String>,
}

impl<'a> Negotiation<'a> {
    /// Begins; `client_flags` are those that the client has answered the greeting with. `None` if
    /// they make no sense, after which the connection ends.
    pub(crate) fn new(
        exports: &'a dyn Exports,
        encryption: Encryption,
        client_flags: u32,
    ) -> Option<Self> {
        let known = u32::from(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES);
        (client_flags & !known == 0).then(|| Self {
            exports,
            encryption,
            wants_no_zeroes: client_flags & u32::from(handshake::NO_ZEROES) != 0,
            has_structured_replies: false,
            block_status_of: None,
        })
    }

    /// Begins again on a connection that is encrypted now. What was agreed on before counts no
    /// more, because somebody between could have said it.
    pub(crate) fn encrypted(&mut self) {
        self.encryption = Encryption::Done;
        self.has_structured_replies = false;
        self.block_status_of = None;
    }

    /// Takes an option, and appends the answer to `out`.
    pub(crate) fn take(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Next {
        let must_encrypt = self.encryption == Encryption::Awaited;
        match option {
            // This option has no reply that says no.
            option::EXPORT_NAME if must_encrypt => return Next::End,
            option::ABORT | option::STARTTLS => {}
            _ if must_encrypt => {
                let why = "this server wants TLS first";
                refuse(out, option, option_reply::TLS_REQUIRED, why);
                return Next::Option;
            }
            _ => {}
        }
        match option {
            option::EXPORT_NAME => return self.take_export_name(data, out),
            option::GO | option::INFO => return self.take_info(option, data, out),
            option::ABORT => {
                acknowledge(out, option);
                return Next::End;
            }
            option::STARTTLS => return self.take_starttls(data, out),
            option::LIST => self.list(data, out),
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.has_structured_replies = true;
                acknowledge(out, option);
            }
            option::STRUCTURED_REPLY => malformed(out, option, Malformed::Length),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.take_contexts(option, data, out);
            }
            _ => refuse(out, option, option_reply::UNSUPPORTED, "this server has no such option"),
        }
        Next::Option
    }

    fn agreed(&self, name: &str, export: Arc<dyn Export>) -> Agreed {
        Agreed {
            export,
            has_structured_replies: self.has_structured_replies,
            has_block_status: self.has_structured_replies
                && self.block_status_of.as_deref() == Some(name),
        }
    }

    fn take_export_name(&self, data: &[u8], out: &mut Vec<u8>) -> Next {
        let Ok(name) = options::export_name(data) else { return Next::End };
        let export = match self.exports.open(name) {
            Ok(export) => export,
            Err(why) => {
                log::info!("a client of NBD asked for '{}': {why}", name.escape_debug());
                return Next::End;
            }
        };
        out.extend(U64::new(export.size_bytes()).as_bytes());
        out.extend(U16::new(self.flags(&*export)).as_bytes());
        if !self.wants_no_zeroes {
            out.extend(PADDING);
        }
        Next::Data(self.agreed(name, export))
    }

    fn take_info(&self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Next {
        let (name, wanted) = match options::info(data) {
            Ok(found) => found,
            Err(why) => {
                malformed(out, option, why);
                return Next::Option;
            }
        };
        let export = match self.exports.open(name) {
            Ok(export) => export,
            Err(why) => {
                refuse(out, option, option_reply::UNKNOWN, &why.message);
                return Next::Option;
            }
        };
        let size_bytes = U64::new(export.size_bytes());
        let flags = U16::new(self.flags(&*export));
        let about = [size_bytes.as_bytes(), flags.as_bytes()].concat();
        inform(out, option, info::EXPORT, &about);
        let sizes = [1, export.preferred_block_bytes(), MAX_LEN_BYTES].map(U32::new);
        inform(out, option, info::BLOCK_SIZE, sizes.as_bytes());
        if wanted.contains(&info::NAME) {
            inform(out, option, info::NAME, name.as_bytes());
        }
        if wanted.contains(&info::DESCRIPTION) {
            inform(out, option, info::DESCRIPTION, export.description().as_bytes());
        }
        acknowledge(out, option);
        match option {
            option::GO => Next::Data(self.agreed(name, export)),
            _ => Next::Option,
        }
    }

    fn flags(&self, export: &dyn Export) -> u16 {
        let mut flags = transmission::HAS_FLAGS
            | transmission::SEND_FLUSH
            | transmission::SEND_FUA
            | transmission::CAN_MULTI_CONN
            | transmission::SEND_CACHE;
        flags |= match export.is_read_only() {
            true => transmission::READ_ONLY,
            false => {
                transmission::SEND_TRIM
                    | transmission::SEND_WRITE_ZEROES
                    | transmission::SEND_FAST_ZERO
            }
        };
        if self.has_structured_replies {
            flags |= transmission::SEND_DF;
        }
        flags
    }

    fn take_starttls(&self, data: &[u8], out: &mut Vec<u8>) -> Next {
        let option = option::STARTTLS;
        match self.encryption {
            _ if !data.is_empty() => malformed(out, option, Malformed::Length),
            Encryption::Never => {
                refuse(out, option, option_reply::POLICY, "this server has no certificates");
            }
            Encryption::Done => {
                refuse(out, option, option_reply::INVALID, "the connection is encrypted already");
            }
            Encryption::Awaited => {
                acknowledge(out, option);
                return Next::StartTls;
            }
        }
        Next::Option
    }

    fn list(&self, data: &[u8], out: &mut Vec<u8>) {
        let option = option::LIST;
        if !data.is_empty() {
            return malformed(out, option, Malformed::Length);
        }
        match self.exports.list() {
            Err(why) => refuse(out, option, option_reply::POLICY, &why.message),
            Ok(listed) => {
                for export in listed {
                    let len_bytes = U32::new(export.name.len() as u32);
                    let (name, about) = (export.name.as_bytes(), export.description.as_bytes());
                    let data = [len_bytes.as_bytes(), name, about].concat();
                    answer(out, option, option_reply::SERVER, &data);
                }
                acknowledge(out, option);
            }
        }
    }

    fn take_contexts(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) {
        let is_set = option == option::SET_META_CONTEXT;
        if is_set {
            // Also where it is refused, what was chosen before counts no more.
            self.block_status_of = None;
        }
        if !self.has_structured_replies {
            let why = "metadata contexts take structured replies, which were not agreed on";
            return refuse(out, option, option_reply::INVALID, why);
        }
        let (name, queries) = match options::contexts(data) {
            Ok(found) => found,
            Err(why) => return malformed(out, option, why),
        };
        if let Err(why) = self.exports.open(name) {
            return refuse(out, option, option_reply::UNKNOWN, &why.message);
        }
        let is_listed = |query: &&str| *query == ALLOCATION_CONTEXT || *query == "base:";
        let is_wanted = match is_set {
            true => queries.contains(&ALLOCATION_CONTEXT),
            false => queries.is_empty() || queries.iter().any(is_listed),
        };
        if is_wanted {
            let id = U32::new(if is_set { ALLOCATION_CONTEXT_ID } else { 0 });
            let data = [id.as_bytes(), ALLOCATION_CONTEXT.as_bytes()].concat();
            answer(out, option, option_reply::META_CONTEXT, &data);
            if is_set {
                self.block_status_of = Some(name.to_owned());
            }
        }
        acknowledge(out, option);
    }
}

/// The answer to an option whose data are too long to be looked at.
pub(crate) fn too_big(out: &mut Vec<u8>, option: u32) {
    refuse(out, option, option_reply::TOO_BIG, "the option's data are too long");
}

fn answer(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    let header = OptionReplyHeader {
        magic: U64::new(OPTION_REPLY_MAGIC),
        option: U32::new(option),
        kind: U32::new(kind),
        len_bytes: U32::new(data.len() as u32),
    };
    out.extend(header.as_bytes());
    out.extend(data);
}

fn acknowledge(out: &mut Vec<u8>, option: u32) {
    answer(out, option, option_reply::ACK, &[]);
}

fn refuse(out: &mut Vec<u8>, option: u32, kind: u32, why: &str) {
    answer(out, option, kind, why.as_bytes());
}

fn malformed(out: &mut Vec<u8>, option: u32, why: Malformed) {
    refuse(out, option, option_reply::INVALID, &why.to_string());
}

fn inform(out: &mut Vec<u8>, option: u32, what: u16, data: &[u8]) {
    let data = [U16::new(what).as_bytes(), data].concat();
    answer(out, option, option_reply::INFO, &data);
}
