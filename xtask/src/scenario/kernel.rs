//! Reading a guest's kernel: unpacking what is compressed, and telling `Image`, ELF and raw binaries apart.

use std::io::Read;

use anyhow::{Context, Result, bail, ensure};

use crate::image::{flatten, header};

/// The largest kernel that is unpacked; a damaged length must not fill the memory.
const MAX_BYTES: u64 = 512 << 20;
/// No kernel says that it takes more than this.
const MAX_IMAGE: u64 = 4 << 30;

/// How a kernel says where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// An arm64 `Image`: its header says it.
    Image(header::ImageHeader),
    /// An ELF file, flattened: physical load and entry addresses.
    Elf {
        /// Where the first byte goes.
        load: u64,
        /// Where it is entered.
        entry: u64,
    },
    /// Anything else: loaded at RAM + 0x8_0000 and entered at its first byte, if the scenario doesn't say otherwise.
    Raw,
}

/// A kernel as the bundle gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// The bytes, uncompressed and flat.
    pub bytes: Vec<u8>,
    /// Bytes in memory, with zeroed data.
    pub memory_bytes: u64,
    /// How it says where it goes.
    pub format: Format,
}

/// Makes a kernel of a file's bytes.
///
/// # Errors
/// An empty file, a compression that is unknown or damaged, an ELF file that can't be flattened.
pub fn parse(file: &[u8]) -> Result<Kernel> {
    let mut bytes = file.to_vec();
    // An EFI zboot kernel may hold gzip, and people compress twice; no one means more than that.
    for _ in 0..3 {
        match unpack(&bytes)? {
            Some(unpacked) => bytes = unpacked,
            None => break,
        }
    }
    ensure!(!bytes.is_empty(), "the file is empty");
    if bytes.starts_with(b"\x7fELF") {
        let flat = flatten::flatten(&bytes)?;
        // An `Image` that still has its ELF file around it goes where its header says.
        if let Some(header) = header::read(&flat.bytes).filter(|_| flat.entry == flat.load) {
            let memory_bytes = image_bytes(&header, flat.memory_bytes)?;
            return Ok(Kernel { bytes: flat.bytes, memory_bytes, format: Format::Image(header) });
        }
        // A bundle has no other word for zeroed data than zeroes, and nothing may be placed there.
        ensure!(flat.memory_bytes <= MAX_BYTES, "it takes {} MiB, more than 512", flat.memory_bytes >> 20);
        let mut bytes = flat.bytes;
        bytes.resize(flat.memory_bytes as usize, 0);
        let format = Format::Elf { load: flat.load, entry: flat.entry };
        return Ok(Kernel { bytes, memory_bytes: flat.memory_bytes, format });
    }
    let length = bytes.len() as u64;
    Ok(match header::read(&bytes) {
        Some(header) => {
            let memory_bytes = image_bytes(&header, length)?;
            Kernel { bytes, memory_bytes, format: Format::Image(header) }
        }
        None => Kernel { bytes, memory_bytes: length, format: Format::Raw },
    })
}

/// Bytes that an `Image` takes in memory: what its header says, and no less than there is of it.
fn image_bytes(header: &header::ImageHeader, there: u64) -> Result<u64> {
    let size = header.image_size;
    ensure!(size <= MAX_IMAGE, "its header's image_size is {size:#x} bytes: the Image is damaged, or none");
    Ok(size.max(there))
}

/// Unpacks one layer of compression, if there is one.
fn unpack(bytes: &[u8]) -> Result<Option<Vec<u8>>> {
    if bytes.starts_with(b"MZ") && bytes.get(4..8) == Some(b"zimg") {
        return zboot(bytes).context("an EFI zboot kernel").map(Some);
    }
    let kind = match bytes {
        [0x1f, 0x8b, ..] => "gzip",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => "xz",
        [0x04, 0x22, 0x4d, 0x18, ..] | [0x02, 0x21, 0x4c, 0x18, ..] => "lz4",
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => "bzip2",
        [0x89, b'L', b'Z', b'O', ..] => "lzo",
        _ => return Ok(None),
    };
    decompress(kind, bytes).map(Some)
}

/// The payload of an EFI zboot kernel: `MZ`, `zimg` at 4, offset and size of the payload at 8 and 12, the
/// compression's name at 24 (Linux's drivers/firmware/efi/libstub/zboot-header.S).
fn zboot(bytes: &[u8]) -> Result<Vec<u8>> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize);
    let (start, length) = word(8).zip(word(12)).context("the header is cut off")?;
    let name = bytes.get(24..56).context("the header is cut off")?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = String::from_utf8_lossy(name);
    let end = start.checked_add(length).context("the payload's size overflows")?;
    let payload = bytes
        .get(start..end)
        .with_context(|| format!("the payload at {start:#x}, {length:#x} bytes, reaches beyond the file"))?;
    decompress(if name == "xzkern" { "xz" } else { &name }, payload)
}

/// Unpacks a stream of a named compression.
fn decompress(kind: &str, bytes: &[u8]) -> Result<Vec<u8>> {
    let damaged = || format!("the {kind} data is damaged");
    let mut input = bytes;
    let mut output = Limited(Vec::new());
    match kind {
        "gzip" => read_all(flate2::read::MultiGzDecoder::new(input), &mut output).with_context(damaged)?,
        "zstd" => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(&mut input)
                .map_err(|error| anyhow::anyhow!("{error}"))
                .with_context(damaged)?;
            read_all(decoder, &mut output).with_context(damaged)?;
        }
        "xz" => lzma_rs::xz_decompress(&mut input, &mut output)
            .map_err(|error| anyhow::anyhow!("{error:?}"))
            .with_context(damaged)?,
        "lzma" => lzma_rs::lzma_decompress(&mut input, &mut output)
            .map_err(|error| anyhow::anyhow!("{error:?}"))
            .with_context(damaged)?,
        "lz4" if bytes.starts_with(&[0x04, 0x22, 0x4d, 0x18]) => {
            read_all(lz4_flex::frame::FrameDecoder::new(input), &mut output).with_context(damaged)?;
        }
        "lz4" => lz4_legacy(bytes, &mut output).with_context(damaged)?,
        _ => bail!(
            "{kind} compression is not known here; unpack the kernel first (gzip, zstd, xz, lzma, lz4 are)"
        ),
    }
    Ok(output.0)
}

/// lz4's legacy frame, the one that kernels use: a magic, then blocks of 8 MiB, each behind its length.
fn lz4_legacy(bytes: &[u8], output: &mut Limited) -> Result<()> {
    let mut rest = bytes.get(4..).unwrap_or_default();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        // The kernel's build appends the unpacked size, which ends the blocks.
        let Some(block) = after.get(..length).filter(|_| length != 0) else {
            break;
        };
        let unpacked = lz4_flex::block::decompress(block, 8 << 20)?;
        std::io::Write::write_all(output, &unpacked)?;
        rest = &after[length..];
    }
    Ok(())
}

/// Copies a stream to its end.
fn read_all(mut from: impl Read, to: &mut Limited) -> std::io::Result<()> {
    std::io::copy(&mut from, to).map(|_| ())
}

/// A buffer that refuses to grow without bounds.
struct Limited(Vec<u8>);

impl std::io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if (self.0.len() + bytes.len()) as u64 > MAX_BYTES {
            return Err(std::io::Error::other("more than 512 MiB unpacked"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "kernel_tests.rs"]
mod tests;
