//! The header of an arm64 Linux `Image` (Linux's arm64 boot protocol): what a loader must know.

use anyhow::{Result, ensure};

/// The header's length in bytes.
pub const BYTES: usize = 64;

const MAGIC: &[u8; 4] = b"ARM\x64";

/// Where a loader must put the image, and how much memory it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageHeader {
    /// Bytes from a 2 MiB boundary to the image.
    pub text_offset: u64,
    /// Bytes in memory from the image's start; 0 in very old kernels.
    pub image_size: u64,
    /// Whether it is a big-endian kernel.
    pub big_endian: bool,
}

/// Reads the header if these bytes begin with one.
pub fn read(bytes: &[u8]) -> Option<ImageHeader> {
    let word = |offset: usize| Some(u64::from_le_bytes(bytes.get(offset..offset + 8)?.try_into().ok()?));
    if bytes.get(0x38..0x3c)? != MAGIC {
        return None;
    }
    Some(ImageHeader { text_offset: word(8)?, image_size: word(16)?, big_endian: word(24)? & 1 != 0 })
}

/// Checks that an image that this project builds can be loaded as its header says.
///
/// # Errors
/// No header, or one that claims less memory than the ELF file's segments need.
pub fn check(bytes: &[u8], memory_bytes: u64) -> Result<ImageHeader> {
    ensure!(bytes.len() >= BYTES, "{} bytes are too few for an image header", bytes.len());
    let Some(header) = read(bytes) else {
        anyhow::bail!(
            "no arm64 image header: the magic at 0x38 is {:02x?}, not \"ARM\\x64\"",
            &bytes[0x38..0x3c]
        );
    };
    ensure!(
        header.image_size >= memory_bytes,
        "the image header's image_size is {:#x}, but the program takes {memory_bytes:#x} bytes in memory; \
         the linker script must count all sections",
        header.image_size
    );
    ensure!(
        header.text_offset < 0x20_0000 && header.text_offset.is_multiple_of(4096),
        "the image header's text_offset is {:#x}, not a page below 2 MiB",
        header.text_offset
    );
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(text_offset: u64, image_size: u64) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[8..16].copy_from_slice(&text_offset.to_le_bytes());
        bytes[16..24].copy_from_slice(&image_size.to_le_bytes());
        bytes[0x38..0x3c].copy_from_slice(MAGIC);
        bytes
    }

    #[test]
    fn a_header_that_claims_too_little_is_refused() {
        assert!(check(&image(0, 0x1000), 0x1000).is_ok());
        assert!(check(&image(0, 0x1000), 0x1001).unwrap_err().to_string().contains("image_size is 0x1000"));
        assert!(check(&image(0x30_0000, 0x1000), 1).unwrap_err().to_string().contains("text_offset"));
        assert!(check(&[0; 64], 1).unwrap_err().to_string().contains("magic"));
        assert!(check(&[0; 8], 1).is_err());
        assert_eq!(read(b"short"), None);
    }
}
