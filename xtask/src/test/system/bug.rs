//! A guest's kernel meets a BUG: Debian's kernels have nothing that could be asked to do that, so one of their modules is changed to.

use anyhow::{Context, Result, ensure};
use object::{Object, ObjectSection, ObjectSymbol};

use super::breadth::{guest, restarted};
use super::case::Case;
use super::cases::{MESSAGING, scenario, vm};
use super::expect::says;
use super::linux::linux_case;
use crate::linux::{Packages, initramfs};

/// The file that a scenario finds the module as.
pub const FILE: &str = "bug.ko";
/// The module that is changed: one that does nothing when nobody uses it.
const MODULE: &str = "failover";
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

/// The module, changed.
///
/// # Errors
/// It isn't there, or not what a module is.
pub fn module(packages: &Packages) -> Result<Vec<u8>> {
    let mut module = initramfs::module(&packages.root, MODULE)?;
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
