//! A writer of cpio archives in the "newc" format, which the Linux kernel unpacks as its initramfs.
//!
//! The format: `Documentation/driver-api/early-userspace/buffer-format.rst` in the kernel's tree. A header of 110
//! ASCII characters, the name with a NUL, the data; name and data are each padded to four bytes. The archive ends with
//! an entry named `TRAILER!!!`.

use anyhow::{Result, bail};

/// `S_IFDIR` of stat(2).
const DIRECTORY: u32 = 0o040_000;
/// `S_IFREG`.
const REGULAR: u32 = 0o100_000;
/// `S_IFLNK`.
const LINK: u32 = 0o120_000;
/// `S_IFCHR`.
const CHARACTER: u32 = 0o020_000;

/// An archive that is being written. Times and owners are all 0, so that equal contents give equal bytes.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// Adds a directory. Parents must be added before what is in them: the kernel creates none by itself.
    ///
    /// # Errors
    /// The name is not one that the format can hold.
    pub fn directory(&mut self, path: &str) -> Result<()> {
        self.entry(path, DIRECTORY | 0o755, (0, 0), &[])
    }

    /// Adds a file with permissions `mode` (the lower nine bits).
    ///
    /// # Errors
    /// The name or the size is not one that the format can hold.
    pub fn file(&mut self, path: &str, mode: u32, data: &[u8]) -> Result<()> {
        self.entry(path, REGULAR | (mode & 0o777), (0, 0), data)
    }

    /// Adds a symbolic link.
    ///
    /// # Errors
    /// The name is not one that the format can hold.
    pub fn link(&mut self, path: &str, to: &str) -> Result<()> {
        self.entry(path, LINK | 0o777, (0, 0), to.as_bytes())
    }

    /// Adds a character device: `/dev/console` must be there before the kernel starts init.
    ///
    /// # Errors
    /// The name is not one that the format can hold.
    pub fn character_device(&mut self, path: &str, mode: u32, device: (u32, u32)) -> Result<()> {
        self.entry(path, CHARACTER | (mode & 0o777), device, &[])
    }

    /// Ends the archive.
    ///
    /// # Errors
    /// None in practice: the trailer's name is a valid one.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        Ok(self.bytes)
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), data: &[u8]) -> Result<()> {
        if path.is_empty() || path.starts_with('/') || path.contains('\0') {
            bail!("{path:?} can't be a name in a cpio archive: it must be relative and not empty");
        }
        let (Ok(size), Ok(name_size)) = (u32::try_from(data.len()), u32::try_from(path.len() + 1)) else {
            bail!("{path}: too large for a cpio archive");
        };
        self.entries += 1;
        let links = if mode & 0o170_000 == DIRECTORY { 2 } else { 1 };
        // inode, mode, uid, gid, links, mtime, size, device major and minor of the file system, of the file, length of
        // the name, checksum (unused in this variant).
        let fields = [self.entries, mode, 0, 0, links, 0, size, 0, 0, device.0, device.1, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
        Ok(())
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field of a header that starts at `at`, by its index.
    fn field(bytes: &[u8], at: usize, index: usize) -> u32 {
        let start = at + 6 + 8 * index;
        u32::from_str_radix(std::str::from_utf8(&bytes[start..start + 8]).expect("ASCII"), 16).expect("hex")
    }

    #[test]
    fn names_and_data_are_padded_to_four_bytes() {
        let mut archive = Archive::default();
        archive.file("init", 0o755, b"hello").expect("valid");
        let bytes = archive.finish().expect("valid");
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(field(&bytes, 0, 1), 0o100_755);
        assert_eq!(field(&bytes, 0, 6), 5, "size");
        assert_eq!(field(&bytes, 0, 11), 5, "name with its NUL");
        // 110 + 5 = 115, padded to 116; the data is padded to 124, where the trailer starts.
        assert_eq!(&bytes[110..124], b"init\0\0hello\0\0\0");
        assert_eq!(&bytes[124..130], b"070701");
        assert_eq!(&bytes[124 + 110..124 + 121], b"TRAILER!!!\0");
        assert_eq!(bytes.len() % 4, 0);
    }

    #[test]
    fn kinds_of_entries() {
        let mut archive = Archive::default();
        archive.directory("dev").expect("valid");
        archive.character_device("dev/console", 0o600, (5, 1)).expect("valid");
        archive.link("sh", "busybox").expect("valid");
        let bytes = archive.finish().expect("valid");
        assert_eq!((field(&bytes, 0, 1), field(&bytes, 0, 4)), (0o040_755, 2));
        let second = 116; // 110 + "dev\0" = 114, padded
        assert_eq!(field(&bytes, second, 1), 0o020_600);
        assert_eq!((field(&bytes, second, 9), field(&bytes, second, 10)), (5, 1));
        let third = second + 124; // 110 + "dev/console\0" = 122, padded
        assert_eq!((field(&bytes, third, 1), field(&bytes, third, 6)), (0o120_777, 7));
    }

    #[test]
    fn equal_contents_give_equal_bytes() {
        let make = || {
            let mut archive = Archive::default();
            archive.file("a", 0o644, b"x").expect("valid");
            archive.finish().expect("valid")
        };
        assert_eq!(make(), make());
    }

    #[test]
    fn names_that_cannot_be_held_are_refused() {
        for name in ["", "/init", "a\0b"] {
            assert!(Archive::default().file(name, 0o644, b"").is_err(), "{name:?}");
        }
    }
}
