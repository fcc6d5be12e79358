//! A guest's kernel meets a BUG: Debian's kernels have nothing that could be asked to do that, so one of their modules is changed to.

use anyhow::{Context, Result, bail, ensure};
use object::{Object, ObjectSection, ObjectSymbol};

use super::breadth::{guest, restarted};
use super::case::Case;
use super::cases::{MESSAGING, scenario, vm};
use super::expect::says;
use super::linux::linux_case;

/// The file that a scenario finds the module as.
pub const FILE: &str = "bug.ko";
/// The module that is changed: one that does nothing when nobody uses it.
const MODULE: &str = "lib/modules/failover.ko";
/// `brk #0x800`: Linux' BUG on arm64 (arch/arm64/include/asm/brk-imm.h).
const BUG: [u8; 4] = 0xd421_0000u32.to_le_bytes();
/// Where in the module's first function: behind what the tracer may rewrite, before anything that branches.
const OFFSET: usize = 12;
/// What a signed module ends with. Without it a module is only unsigned; with it, it would have been tampered with.
const SIGNED: &[u8] = b"~Module signature appended~\n";

/// One guest goes on after its BUG, as Linux does; one panics at it (`oops=panic`), and is restarted. A third one sees nothing of that.
pub fn case() -> Case {
    let take = "cat /dev/vda > /tmp/bug.ko";
    let common = "console=ttyAMA0 quiet cma=0 cryptomgr.notests";
    let disk = format!("disk = \"{FILE}\"");
    let goes_on = format!("{take}; insmod /tmp/bug.ko; dmesg | grep [I]nternal.error");
    let dies = format!(
        "head -c 5 /dev/vda | grep -q again && exit 0; {take}; echo again > /dev/vda; sync; insmod /tmp/bug.ko; sleep 1000"
    );
    let vms = [
        guest("goes-on", 2, 128, "", &disk, &format!("{common} odometer.exec=\"{goes_on}\"")),
        guest("dies", 2, 128, "", &disk, &format!("{common} oops=panic panic=0 odometer.exec=\"{dies}\"")),
        vm("talk", 2, MESSAGING, ""),
    ];
    linux_case("linux-bug", scenario("cpus = 2\nthreads = \"multi\"", "\"vm.panic\" = \"restart\"", &vms))
        .expect(says(&["goes-on|", "Internal error"]))
        .expect(says(&["dies", "its kernel has panicked"]))
        .expect(restarted("goes-on", 0))
        .expect(restarted("dies", 1))
        .expect(restarted("talk", 0))
}

/// The module, taken from an initramfs.
///
/// # Errors
/// It isn't there, or not what a module is.
pub fn module(initramfs: &[u8]) -> Result<Vec<u8>> {
    let mut module = file(initramfs, MODULE)?.to_vec();
    let elf = object::File::parse(&*module).context("reading the module")?;
    let init = elf.symbols().find(|symbol| symbol.name() == Ok("init_module")).context("no init_module")?;
    let section = init.section_index().context("init_module is in no section")?;
    let (start, size) = elf.section_by_index(section)?.file_range().context("its section is empty")?;
    let at = init.address() as usize + OFFSET;
    ensure!(at + BUG.len() <= size as usize, "init_module is too short");
    let at = start as usize + at;
    module[at..at + BUG.len()].copy_from_slice(&BUG);
    if module.ends_with(SIGNED) {
        let end = module.len() - SIGNED.len();
        module[end..].fill(0);
    }
    Ok(module)
}

/// A file of an archive in the format "newc" (Linux, Documentation/driver-api/early-userspace/buffer-format.rst).
fn file<'a>(mut archive: &'a [u8], wanted: &str) -> Result<&'a [u8]> {
    const HEADER: usize = 110;
    loop {
        ensure!(archive.starts_with(b"070701"), "{wanted} isn't in the archive");
        let field = |index: usize| -> Result<usize> {
            let digits = archive.get(6 + 8 * index..14 + 8 * index).context("the archive is cut off")?;
            Ok(usize::from_str_radix(str::from_utf8(digits)?, 16)?)
        };
        let (size, name_size) = (field(6)?, field(11)?);
        let data = (HEADER + name_size).next_multiple_of(4);
        let next = (data + size).next_multiple_of(4);
        let (Some(name), Some(bytes)) =
            (archive.get(HEADER..HEADER + name_size), archive.get(data..data + size))
        else {
            bail!("the archive is cut off")
        };
        if name.strip_suffix(&[0]) == Some(wanted.as_bytes()) {
            return Ok(bytes);
        }
        archive = archive.get(next..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::cpio::Archive;

    #[test]
    fn a_file_is_found_in_an_archive() {
        let mut archive = Archive::default();
        archive.directory("lib").expect("added");
        archive.file("lib/a", 0o644, b"seven b").expect("added");
        archive.file("lib/ab", 0o644, b"the other").expect("added");
        let archive = archive.finish().expect("finished");
        assert_eq!(file(&archive, "lib/ab").expect("there"), b"the other");
        assert!(file(&archive, "lib/b").unwrap_err().to_string().contains("isn't in"));
        assert!(file(&archive[..100], "lib/a").is_err());
        assert!(module(&archive).is_err());
    }
}
