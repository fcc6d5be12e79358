//! The one pass over a blob after which it can be trusted (Devicetree specification 0.4, chapter 5).

use core::fmt;

use super::{Blob, Tree};

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 40;
/// Deepest nesting of nodes that is read. Boards stay below 10.
pub const MAX_DEPTH: usize = 32;

const MAGIC: u32 = 0xd00d_feed;
/// The version that introduced the structure block's size; every tool has written it since 2007.
const VERSION: u32 = 17;

const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const NOP: u32 = 4;
const END: u32 = 9;

/// Why a blob is no device tree. Offsets are in bytes from the blob's beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FdtError {
    /// Fewer bytes than a header, or than the header says that the blob has.
    Truncated {
        /// Bytes that there are.
        have: usize,
        /// Bytes that there should be at least.
        need: usize,
    },
    /// The first word isn't the magic number.
    Magic {
        /// What is there instead.
        found: u32,
    },
    /// A version that can't be read.
    Version {
        /// The header's `version`.
        version: u32,
        /// The header's `last_comp_version`.
        compatible: u32,
    },
    /// A header field that points outside the blob or is misaligned.
    Header {
        /// The field's name in the specification.
        field: &'static str,
        /// Its value.
        value: u32,
    },
    /// The reservation map has no terminator.
    Reservations {
        /// Where the map begins.
        offset: usize,
    },
    /// The structure block is malformed.
    Structure {
        /// Where.
        offset: usize,
        /// What was wrong there.
        what: &'static str,
    },
}

impl fmt::Display for FdtError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            FdtError::Truncated { have, need } => {
                write!(f, "device tree blob is cut short: {have} bytes of at least {need}")
            }
            FdtError::Magic { found } => {
                write!(f, "not a device tree blob: begins with {found:#010x}, not with {MAGIC:#010x}")
            }
            FdtError::Version { version, compatible } => write!(
                f,
                "device tree blob of version {version} (compatible with {compatible}): version {VERSION} is needed, as dtc writes it"
            ),
            FdtError::Header { field, value } => {
                write!(
                    f,
                    "device tree blob: header field {field} = {value:#x} is outside the blob or misaligned"
                )
            }
            FdtError::Reservations { offset } => {
                write!(f, "device tree blob: reservation map at {offset:#x} doesn't end with a zero entry")
            }
            FdtError::Structure { offset, what } => {
                write!(f, "device tree blob: structure block at {offset:#x}: {what}")
            }
        }
    }
}

impl core::error::Error for FdtError {}

/// The 32-bit big-endian word at `offset`.
pub(super) fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    let end = offset.checked_add(4)?;
    Some(u32::from_be_bytes(bytes.get(offset..end)?.try_into().ok()?))
}

/// One element of the structure block.
pub(super) enum Token<'a> {
    /// A node begins; `name` is without its terminator.
    Begin { name: &'a [u8] },
    /// The innermost node ends.
    End,
    /// A property; `name` is an offset into the strings block.
    Property { name: usize, value: &'a [u8] },
    /// Nothing: tools overwrite what they remove with it.
    Nop,
    /// The end of the structure block.
    Finish,
}

impl<'a> Token<'a> {
    /// The token at `*offset`, which moves behind it; `None` where there is none that is whole.
    pub(super) fn read(structure: &'a [u8], offset: &mut usize) -> Option<Token<'a>> {
        let body = offset.checked_add(4)?;
        let (token, end) = match word(structure, *offset)? {
            BEGIN_NODE => {
                let rest = structure.get(body..)?;
                let length = rest.iter().position(|&byte| byte == 0)?;
                let name = rest.get(..length)?;
                (Token::Begin { name }, body.checked_add(length)?.checked_add(1)?)
            }
            PROPERTY => {
                let length = word(structure, body)? as usize;
                let name = word(structure, body.checked_add(4)?)? as usize;
                let start = body.checked_add(8)?;
                let end = start.checked_add(length)?;
                (Token::Property { name, value: structure.get(start..end)? }, end)
            }
            END_NODE => (Token::End, body),
            NOP => (Token::Nop, body),
            END => (Token::Finish, body),
            _ => return None,
        };
        *offset = end.checked_next_multiple_of(4)?;
        Some(token)
    }
}

/// Length in bytes of the blob whose first [`HEADER_LEN`] bytes (or more) are `header`.
///
/// For a blob of which only the address is known: read the header, then make a slice of this length.
///
/// # Errors
/// Too few bytes, or they aren't a device tree's header.
pub fn blob_size(header: &[u8]) -> Result<usize, FdtError> {
    let truncated = FdtError::Truncated { have: header.len(), need: HEADER_LEN };
    let magic = word(header, 0).ok_or(truncated)?;
    if magic != MAGIC {
        return Err(FdtError::Magic { found: magic });
    }
    if header.len() < HEADER_LEN {
        return Err(truncated);
    }
    let size = word(header, 4).ok_or(truncated)?;
    if (size as usize) < HEADER_LEN {
        return Err(FdtError::Header { field: "totalsize", value: size });
    }
    Ok(size as usize)
}

/// Checks everything that the other modules rely on.
pub(super) fn check(bytes: &[u8]) -> Result<Blob<'_>, FdtError> {
    let size = blob_size(bytes)?;
    let blob = bytes.get(..size).ok_or(FdtError::Truncated { have: bytes.len(), need: size })?;
    let field = |index: usize| word(blob, index * 4).unwrap_or(0);
    let (version, compatible) = (field(5), field(6));
    if version < VERSION || compatible > VERSION {
        return Err(FdtError::Version { version, compatible });
    }
    let block = |name, start: u32, length: u32, align: usize| {
        let offset = start as usize;
        let part = blob.get(offset..offset.saturating_add(length as usize));
        part.filter(|_| offset.is_multiple_of(align)).ok_or(FdtError::Header { field: name, value: start })
    };
    let structure = block("off_dt_struct", field(2), field(9), 4)?;
    let strings = block("off_dt_strings", field(3), field(8), 1)?;
    let map = field(4);
    let map_length = u32::try_from(size).unwrap_or(u32::MAX).saturating_sub(map);
    let map_bytes = block("off_mem_rsvmap", map, map_length, 8)?;
    let entries = map_bytes
        .as_chunks::<16>()
        .0
        .iter()
        .position(|entry| entry.iter().all(|&byte| byte == 0))
        .ok_or(FdtError::Reservations { offset: map as usize })?;
    let reservations = map_bytes.get(..entries * 16).unwrap_or(&[]);

    check_structure(structure, strings)
        .map_err(|(offset, what)| FdtError::Structure { offset: field(2) as usize + offset, what })?;
    Ok(Blob { tree: Tree { structure, strings }, reservations, size })
}

/// Walks all tokens. An error is the offset in `structure` and what was found there.
fn check_structure(structure: &[u8], strings: &[u8]) -> Result<(), (usize, &'static str)> {
    // Every name that begins at or before the last NUL ends within the strings block.
    let names_end = strings.iter().rposition(|&byte| byte == 0);
    let mut depth = 0;
    let mut root_seen = false;
    // Properties come before child nodes (specification, 5.4.2).
    let mut properties_allowed = false;
    let mut offset = 0;
    loop {
        let start = offset;
        let fail = |what| Err((start, what));
        let Some(token) = Token::read(structure, &mut offset) else {
            return fail("an unknown token, or one that the block's end cuts off");
        };
        match token {
            Token::Begin { name } => {
                if depth == 0 {
                    if root_seen || start != 0 {
                        return fail("a root node that isn't the first and only one");
                    }
                    root_seen = true;
                } else if name.is_empty() {
                    return fail("a node without a name");
                }
                if !name.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'/') {
                    return fail("a node name that isn't plain ASCII");
                }
                depth += 1;
                if depth > MAX_DEPTH {
                    return fail("nodes nested deeper than 32");
                }
                properties_allowed = true;
            }
            Token::End if depth == 0 => return fail("the end of a node that never began"),
            Token::End => {
                depth -= 1;
                properties_allowed = false;
            }
            Token::Property { name, .. } => {
                if !properties_allowed {
                    return fail("a property outside a node or after a child node");
                }
                if names_end.is_none_or(|end| name >= end) {
                    return fail("a property whose name is outside the strings block");
                }
                if !property_name(strings, name).iter().all(u8::is_ascii_graphic) {
                    return fail("a property name that isn't plain ASCII");
                }
            }
            Token::Nop => {}
            Token::Finish if depth == 0 && root_seen => return Ok(()),
            Token::Finish => return fail("the end of the tree inside a node"),
        }
    }
}

/// The bytes of the name that begins at `offset` of the strings block.
pub(super) fn property_name(strings: &[u8], offset: usize) -> &[u8] {
    let rest = strings.get(offset..).unwrap_or(&[]);
    rest.split(|&byte| byte == 0).next().unwrap_or(&[])
}
