//! Tests of reading kernels: each compression, each format, and damaged ones.

use std::io::Write;

use super::*;

fn image() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..5000u32).map(|n| (n / 7) as u8).collect();
    bytes[8..16].copy_from_slice(&0u64.to_le_bytes());
    bytes[16..24].copy_from_slice(&0x2000u64.to_le_bytes());
    bytes[0x38..0x3c].copy_from_slice(b"ARM\x64");
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zboot_of(name: &str, payload: &[u8]) -> Vec<u8> {
    let mut file = b"MZ\0\0zimg".to_vec();
    file.extend(64u32.to_le_bytes());
    file.extend((payload.len() as u32).to_le_bytes());
    file.resize(24, 0);
    file.extend(name.as_bytes());
    file.resize(64, 0);
    file.extend(payload);
    file.extend([0xaa; 100]);
    file
}

#[test]
fn every_compression_gives_the_same_image() {
    let plain = parse(&image()).unwrap();
    assert_eq!(plain.memory_bytes, 0x2000);
    assert!(matches!(plain.format, Format::Image(header) if header.image_size == 0x2000));

    let zstd = ruzstd::encoding::compress_to_vec(&image()[..], ruzstd::encoding::CompressionLevel::Fastest);
    let mut xz = Vec::new();
    lzma_rs::xz_compress(&mut &image()[..], &mut xz).unwrap();
    let mut lzma = Vec::new();
    lzma_rs::lzma_compress(&mut &image()[..], &mut lzma).unwrap();
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    lz4.write_all(&image()).unwrap();
    let lz4 = lz4.finish().unwrap();
    let block = lz4_flex::block::compress(&image());
    let mut legacy = vec![0x02, 0x21, 0x4c, 0x18];
    legacy.extend((block.len() as u32).to_le_bytes());
    legacy.extend(&block);
    legacy.extend(5000u32.to_le_bytes());

    for (name, file) in [
        ("gzip", gzip(&image())),
        ("zstd", zstd.clone()),
        ("xz", xz.clone()),
        ("lz4", lz4),
        ("lz4 legacy", legacy),
        ("zboot gzip", zboot_of("gzip", &gzip(&image()))),
        ("zboot zstd", zboot_of("zstd", &zstd)),
        ("zboot xz", zboot_of("xzkern", &xz)),
        ("zboot lzma", zboot_of("lzma", &lzma)),
        ("twice", gzip(&gzip(&image()))),
    ] {
        assert_eq!(parse(&file).unwrap(), plain, "{name}");
    }
}

#[test]
fn anything_else_is_a_raw_binary() {
    let kernel = parse(b"\x01\x02\x03\x04").unwrap();
    assert_eq!((kernel.format, kernel.memory_bytes), (Format::Raw, 4));
}

#[test]
fn damaged_and_unknown_files_say_what_they_are() {
    let message = |file: &[u8]| format!("{:#}", parse(file).unwrap_err());
    assert!(message(b"").contains("empty"));
    assert!(message(&gzip(&image())[..50]).contains("gzip data is damaged"));
    assert!(message(b"\x28\xb5\x2f\xfd junk").contains("zstd data is damaged"));
    assert!(message(b"\xfd7zXZ\0 junk").contains("xz data is damaged"));
    assert!(message(b"BZh9junk").contains("bzip2 compression is not known"));
    assert!(message(&zboot_of("lzo", b"junk")).contains("lzo compression is not known"));
    let mut cut = zboot_of("gzip", &gzip(&image()));
    cut.truncate(80);
    assert!(message(&cut).contains("reaches beyond the file"));
    assert!(message(b"MZ\0\0zimg").contains("cut off"));
    assert!(message(b"\x7fELF junk").contains("ELF"));
}

#[test]
fn a_header_that_cannot_be_is_named() {
    let mut bytes = image();
    bytes[16..24].copy_from_slice(&(u64::MAX / 2).to_le_bytes());
    let error = parse(&bytes).unwrap_err().to_string();
    assert!(error.contains("image_size is 0x7fffffffffffffff"), "{error}");
}
