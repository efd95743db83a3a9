//! Findings about files, and their kinds.

use std::fmt;

use crate::types::Ino;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Space is lost or a number is wrong, but no data is affected.
    Warning,
    /// Data cannot be read or reached, or may be wrong.
    Error,
}

/// What a repair does about a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mending {
    /// It is mended without a question: nothing is decided about data.
    Safe,
    /// It is mended if the user agrees.
    Asked,
    /// It cannot be mended.
    Never,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $severity:ident, $mending:ident, $title:literal, $repair:literal;)*) => {
        /// The kind of a finding. The meaning of a number never changes. The numbers of the disk's
        /// findings are below 200, so that a number says what it is about.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum FindingCode { $($(#[$doc])* $name = $number,)* }

        impl FindingCode {
            /// All kinds, by ascending number.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// How bad it is.
            #[must_use]
            pub const fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity,)* }
            }

            /// Whether a repair mends it.
            #[must_use]
            pub const fn mending(self) -> Mending {
                match self { $(Self::$name => Mending::$mending,)* }
            }

            /// What it is, in a few words.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }

            /// What a repair does about it.
            #[must_use]
            pub const fn repair(self) -> &'static str {
                match self { $(Self::$name => $repair,)* }
            }
        }
    };
}

codes! {
    /// The volume's description or one of its lists is missing or malformed.
    BadVolume = 201, Error, Asked, "the volume's description is missing or malformed",
        "takes it from another version, or makes it anew";
    /// A list has no i-node, or a malformed one.
    BadInode = 202, Error, Asked, "a file's i-node is missing or malformed",
        "makes it anew from what can be read; what only root may read until its owner is known";
    /// A record has an index at which there must be none.
    StrayRecord = 203, Warning, Asked, "a record that belongs to nothing",
        "removes it; if it is an entry of a directory, makes the file a directory again";
    /// A directory record is malformed.
    BadDirectoryRecord = 204, Error, Asked, "a record of a directory is malformed",
        "keeps the entries that can be read";
    /// A name is in a record to which it does not hash.
    WrongHash = 205, Error, Asked, "an entry is not where its name is looked up",
        "moves the entry there";
    /// Two entries of a directory have the same name or slot.
    DuplicateEntry = 206, Error, Asked, "two entries of a directory have one name or place",
        "keeps one of two equal entries; gives an entry for another file a new name";
    /// An entry names a file that does not exist, and does not call it a directory.
    DanglingEntry = 207, Error, Asked, "an entry names a file that is not there",
        "removes the entry";
    /// The type in an entry differs from that of the file.
    WrongKind = 208, Error, Safe, "the type in an entry is not that of the file",
        "writes the file's type into the entry";
    /// The parent in a directory's i-node is not the directory that has an entry for it.
    WrongParent = 209, Error, Asked, "a directory is not in the directory that it names",
        "writes the parent; of several entries for the directory, keeps one";
    /// The link count of a file differs from its number of names.
    WrongLinkCount = 210, Warning, Safe, "a link count is wrong",
        "writes the number of names";
    /// The size of a directory differs from that of its entries.
    WrongDirectorySize = 211, Warning, Safe, "the size of a directory is wrong",
        "writes the size of its entries";
    /// The page count of a file is less than its number of pages, or a file has pages that can have
    /// none.
    WrongPageCount = 212, Warning, Safe, "a count of pages is wrong",
        "writes the number of pages; frees pages of files that have none";
    /// A file has pages behind its end, and its state does not allow that.
    PagesPastEnd = 213, Warning, Asked, "a file has pages behind its end",
        "notes pages of zeros as preallocated; else lets the file end behind its data";
    /// A file has bytes other than zeros behind its end.
    DataPastEnd = 214, Error, Asked, "a file has data behind its end",
        "lets the file end behind its data";
    /// A file has no name and is not on the orphan list.
    Unreachable = 215, Error, Asked, "a file has no name",
        "gives it the name that another version has, or its number as one, mostly in /lost+found";
    /// The orphan list has a file that is not an orphan, or lacks one that is.
    BadOrphan = 216, Warning, Safe, "the list of orphans is wrong",
        "corrects the list";
    /// An extended attribute is malformed or misplaced.
    BadXattr = 217, Error, Asked, "an extended attribute is malformed or misplaced",
        "keeps the attributes that can be read";
    /// The i-node's account of its attributes (length of names, capability) is wrong.
    WrongXattrAccount = 218, Warning, Safe, "the account of extended attributes is wrong",
        "writes the account";
    /// The page in which a file ends, or one behind its end, cannot be read.
    UnreadablePage = 219, Error, Never, "a page at a file's end cannot be read",
        "nothing: the file keeps what can be read; restore it, or remove it";
    /// Directories are inside each other.
    DirectoryLoop = 220, Error, Asked, "directories are inside each other",
        "moves one of them to /lost+found";
    /// The records of a list cannot be read.
    UnreadableList = 221, Error, Never, "the records of a file cannot be read",
        "nothing: the disk has lost them";
    /// An entry has a name that no file can have.
    BadName = 222, Error, Asked, "an entry has a name that no file can have",
        "gives the entry a name with '_' in place of what is not allowed";
    /// A file has fewer pages than its page count says.
    LostPages = 223, Error, Asked, "pages of a file are lost",
        "writes the number of pages that are left; what is lost reads as zeros";
    /// An entry names a directory that does not exist.
    LostDirectory = 224, Error, Asked, "a directory is lost",
        "makes it anew with the files that say that they were in it; if none does, removes its name";
}

impl FindingCode {
    /// Its number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }
}

/// Something that is wrong with the file system.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finding {
    /// The kind of finding.
    pub code: FindingCode,
    /// The file that it concerns; for an entry the directory.
    pub ino: Ino,
    /// The entry that it concerns, if it is one.
    pub entry: Option<NamedEntry>,
    /// The number that is right, if a number is wrong; of a file without i-node the type of a
    /// directory ([`FileKind::dirent_type`]), if its name says that it is one.
    ///
    /// [`FileKind::dirent_type`]: crate::FileKind::dirent_type
    pub expected: Option<u64>,
    /// A description.
    pub detail: String,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamedEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// The file that it names.
    pub child: Ino,
}

impl Finding {
    pub(crate) fn new(code: FindingCode, ino: Ino, detail: impl Into<String>) -> Self {
        Self { code, ino, entry: None, expected: None, detail: detail.into() }
    }

    /// The same with the number that is right.
    pub(super) fn expecting(self, expected: u64) -> Self {
        Self { expected: Some(expected), ..self }
    }

    /// The same about an entry of the directory.
    pub(super) fn about(self, name: &[u8], child: Ino) -> Self {
        Self { entry: Some(NamedEntry { name: name.to_vec(), child }), ..self }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, ino, detail, .. } = self;
        write!(f, "{}: i-node {ino}: {}: {detail}", code.number(), code.title())
    }
}
