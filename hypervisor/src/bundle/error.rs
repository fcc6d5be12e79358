//! Why a bundle can't be used.

use core::fmt;

use crate::platform::fdt::{Fault, FdtError};

/// Why a bundle can't be used.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum BundleError<'a> {
    /// It isn't a FIT image at all, but something that is well known.
    Foreign {
        /// What it is.
        what: &'static str,
    },
    /// It isn't a sound FIT image.
    Tree(FdtError),
    /// An entry of it is missing or wrong.
    Entry(Fault<'a>),
}

impl BundleError<'_> {
    /// Refines the reader's error by a look at the file's first bytes.
    pub(super) fn from_fdt(error: FdtError, data: &[u8]) -> Self {
        /// First bytes of what people put into an initrd.
        const KNOWN: [(&[u8], &str); 5] = [
            (b"070701", "a cpio archive"),
            (&[0x1f, 0x8b], "gzip data"),
            (&[0x28, 0xb5, 0x2f, 0xfd], "zstd data"),
            (b"\xfd7zXZ", "xz data"),
            (b"\x7fELF", "an ELF file"),
        ];
        match KNOWN.iter().find(|(magic, _)| data.starts_with(magic)) {
            Some((_, what)) => BundleError::Foreign { what },
            None => BundleError::Tree(error),
        }
    }
}

impl<'a> From<Fault<'a>> for BundleError<'a> {
    fn from(fault: Fault<'a>) -> Self {
        BundleError::Entry(fault)
    }
}

impl fmt::Display for BundleError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BundleError::Foreign { what } => {
                write!(f, "bundle: the initrd is {what}; a FIT image is needed, as `cargo xtask` writes it")
            }
            BundleError::Tree(error) => write!(f, "bundle: {error}"),
            BundleError::Entry(fault) => write!(f, "bundle: {fault}"),
        }
    }
}

impl core::error::Error for BundleError<'_> {}
