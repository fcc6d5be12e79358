//! Call trees that record stack traces (tree.S), and pointer authentication for them.

use core::arch::asm;

use super::cpu::{isb, read_register, write_register};
use crate::stacktrace::{MAX_DEPTH, Method};

core::arch::global_asm!(include_str!("tree.S"));

unsafe extern "C" {
    fn tree_call(tree: usize, depth: u64, trace: *mut u64, turns: u64, shadow: *mut u64) -> usize;
}

/// A tree's first instruction, and where its calls of itself return to.
macro_rules! tree {
    ($tree:ident, $back:ident) => {{
        unsafe extern "C" {
            static $tree: u8;
            static $back: u8;
        }
        ((&raw const $tree).addr(), (&raw const $back).addr() as u64)
    }};
}

/// The memory that a tree uses.
pub struct Stacks {
    trace: [u64; MAX_DEPTH as usize],
    shadow: [u64; MAX_DEPTH as usize],
}

impl Stacks {
    /// Empty ones.
    pub const fn new() -> Stacks {
        Stacks { trace: [0; MAX_DEPTH as usize], shadow: [0; MAX_DEPTH as usize] }
    }
}

/// A tree to be called.
pub struct Tree {
    entry: usize,
    back: u64,
    records: bool,
}

impl Tree {
    /// The tree of a method, with signed return addresses or not.
    pub fn new(method: Method, signed: bool) -> Tree {
        let (entry, back) = match (method, signed) {
            (Method::None, false) => tree!(tree_plain, back_plain),
            (Method::Frames, false) => tree!(tree_frames, back_frames),
            (Method::Floor, false) => tree!(tree_kept, back_kept),
            (Method::Shadow, false) => tree!(tree_shadow, back_shadow),
            (Method::None, true) => tree!(tree_plain_signed, back_plain_signed),
            (Method::Frames, true) => tree!(tree_frames_signed, back_frames_signed),
            (Method::Floor, true) => tree!(tree_kept_signed, back_kept_signed),
            (Method::Shadow, true) => tree!(tree_shadow_signed, back_shadow_signed),
        };
        Tree { entry, back, records: matches!(method, Method::Frames | Method::Shadow) }
    }

    /// Calls it, 1 to [`MAX_DEPTH`] deep, with `turns` of other work in the leaf; returns how many addresses it recorded.
    #[inline]
    pub fn call(&self, depth: u32, turns: u64, stacks: &mut Stacks) -> usize {
        let trace = stacks.trace.as_mut_ptr();
        // SAFETY: a tree of tree.S, which keeps what the calling convention wants kept; `depth` addresses fit into
        // either stack.
        let end = unsafe {
            tree_call(self.entry, depth.clamp(1, MAX_DEPTH).into(), trace, turns, stacks.shadow.as_mut_ptr())
        };
        (end - trace.addr()) / size_of::<u64>()
    }

    /// Whether a call left the right trace.
    pub fn is_right(&self, depth: u32, stacks: &mut Stacks) -> bool {
        stacks.trace.fill(0);
        let n = self.call(depth, 0, stacks);
        if !self.records {
            return n == 0;
        }
        let (inner, outer) = stacks.trace.split_at(depth as usize - 1);
        // Last comes the address in `tree_call`, which is none of the tree's own.
        n == depth as usize
            && inner.iter().all(|at| *at == self.back)
            && outer[0] != 0
            && outer[0] != self.back
    }
}

const ENABLE_IA: u64 = 1 << 31;

/// Whether this CPU signs addresses (ID_AA64ISAR1_EL1.APA, API; ID_AA64ISAR2_EL1.APA3 is S3_0_C0_C6_2).
pub fn can_sign() -> bool {
    let isar1 = read_register!("id_aa64isar1_el1");
    isar1 & 0xff0 != 0 || (read_register!("S3_0_C0_C6_2") >> 12) & 0xf != 0
}

/// Runs `work` with key A signing (SCTLR_EL1.EnIA): nothing but the trees has instructions that sign.
pub fn signing<T>(on: bool, work: impl FnOnce() -> T) -> T {
    let before = read_register!("sctlr_el1");
    if on {
        write_register!("S3_0_C2_C1_0", 0x0123_4567_89ab_cdef);
        write_register!("S3_0_C2_C1_1", 0xfedc_ba98_7654_3210);
        write_register!("sctlr_el1", before | ENABLE_IA);
        isb();
    }
    let result = work();
    write_register!("sctlr_el1", before);
    isb();
    result
}

/// Whether a signed address differs from the address: that signing isn't without effect here.
pub fn signs() -> bool {
    let signed: u64;
    // SAFETY: signs x17 by key A and x16 (pacia1716, a hint); nothing is done with it.
    unsafe {
        asm!("hint #8", inout("x17") 0x4010_0000u64 => signed, in("x16") 0x4020_0000u64, options(nomem, nostack))
    };
    signed != 0x4010_0000
}
