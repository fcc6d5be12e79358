//! A user's program at EL0 under one of three arrangements of maps (user.S), and probes of what its map has.

use core::sync::atomic::{AtomicU64, Ordering};

use super::mmu::{self, PAGE, PRIVATE_BASE, Root};
use crate::kernel::memory::Arena;
use crate::syscall::{Call, Isolation};

/// The program's page, and behind it the stack of its calls.
const TEXT: usize = PRIVATE_BASE;
const STACK: usize = PRIVATE_BASE + PAGE;
const STACK_PAGES: usize = 2;
/// At the top of the stack of its calls: the answer of the null call, and the kernel's stack pointer.
const TOP: usize = STACK + STACK_PAGES * PAGE - 16;
/// The kernel's ASID: even. The user's is the next.
const ASID: u16 = 2;

/// What each call answers.
pub const PARENT: u64 = 4711;

unsafe extern "C" {
    static trampoline_start: u8;
    static trampoline_end: u8;
    static user_text: u8;
    static user_peek: u8;
    static vectors_off: u8;
    static vectors_on: u8;
    static vectors_deferred: u8;
    fn user_run(
        entry: usize,
        count: u64,
        number: u64,
        address: usize,
        top: usize,
        vectors: usize,
        leave: u64,
    ) -> Left;
    fn user_map_load(address: usize, leave: u64) -> u64;
}

/// How a program ended: syndrome and its sum.
#[repr(C)]
struct Left {
    syndrome: u64,
    sum: u64,
}

static PAD: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);

/// Call 1: it works in the kernel's own memory, for about as many instructions as were asked for.
#[unsafe(no_mangle)]
extern "C" fn guest_syscall() -> u64 {
    CALLS.store(CALLS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    let turns = PAD.load(Ordering::Relaxed);
    if turns > 0 {
        // SAFETY: counts a register down.
        unsafe {
            core::arch::asm!("2:", "subs {n}, {n}, #1", "b.ne 2b", n = inout(reg) turns => _, options(nomem, nostack))
        };
    }
    PARENT
}

/// The class of a supervisor call's syndrome.
const CLASS_SVC: u64 = 0x15;

/// A program's address spaces: the kernel's and, with isolation, its own.
pub struct User {
    isolation: Isolation,
    kernel: u64,
}

impl User {
    /// Makes the address spaces. `None`: not enough memory.
    pub fn new(arena: &mut Arena, isolation: Isolation) -> Option<User> {
        let (start, end, text) =
            (&raw const trampoline_start, &raw const trampoline_end, &raw const user_text);
        let stack = arena.take::<u64>(STACK_PAGES * PAGE / 8, PAGE, 0)?;
        let at = stack.len() - 2;
        stack[at] = PARENT;
        let stack = stack.as_ptr() as u64;
        let roots = arena.take::<Root>(2, 128, [0; 8])?;
        let mut private = |with_stack: bool| {
            let pages = mmu::table(arena)?;
            pages[0] = mmu::user_code(text as u64);
            for (i, page) in pages.iter_mut().skip(1).take(STACK_PAGES).enumerate().filter(|_| with_stack) {
                *page = mmu::own_data(stack + (i * PAGE) as u64);
            }
            mmu::gigabyte(arena, PRIVATE_BASE, pages)
        };
        roots[0][2] = private(true)?;
        roots[1][2] = private(isolation == Isolation::Deferred)?;
        let tables = if isolation == Isolation::Off { mmu::shared_kernel() } else { mmu::own_kernel(arena)? };
        roots[0][..2].copy_from_slice(&tables);
        let pages = mmu::table(arena)?;
        for page in (start as usize..end as usize).step_by(PAGE) {
            pages[mmu::page_index(page)] = mmu::own_code(page as u64);
        }
        roots[1][1] = mmu::gigabyte(arena, start as usize, pages)?;
        Some(User { isolation, kernel: roots.as_ptr() as u64 | u64::from(ASID) << 48 })
    }

    /// Whether a program runs without the kernel's map.
    fn leaves(&self) -> u64 {
        u64::from(self.isolation != Isolation::Off)
    }

    /// Does something in the kernel's address space of this program; global entries are dropped from the TLB before, so that
    /// nothing of the ordinary kernel map is left for the user's.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        let _masked = crate::sync::Masked::new();
        mmu::switch_space(self.kernel);
        mmu::forget_all();
        let result = work();
        mmu::switch_space(mmu::kernel_space());
        mmu::forget_all();
        result
    }

    fn start(&self, entry: usize, count: u64, number: u64, address: usize) -> Left {
        let vectors = match self.isolation {
            Isolation::Off => &raw const vectors_off,
            Isolation::On => &raw const vectors_on,
            Isolation::Deferred => &raw const vectors_deferred,
        };
        // SAFETY: called within this address space with interrupts masked (`within`); the stack at TOP is mapped there and nobody
        // else's; user.S keeps what the calling convention wants kept.
        unsafe { user_run(entry, count, number, address, TOP, vectors as usize, self.leaves()) }
    }

    /// `n` calls, within the address space; whether all were answered rightly.
    pub fn calls(&self, call: Call, n: u64, pad: u64) -> bool {
        PAD.store(pad / 2, Ordering::Relaxed);
        CALLS.store(0, Ordering::Relaxed);
        let left = self.start(TEXT, n, call as u64, 0);
        let worked = if call == Call::Padded { n } else { 0 };
        left.syndrome >> 26 == CLASS_SVC
            && left.sum == PARENT.wrapping_mul(n)
            && CALLS.load(Ordering::Relaxed) == worked
    }

    /// A load by the program at EL0 from `address`: its syndrome if it faulted.
    pub fn peek(&self, address: usize) -> Option<u64> {
        let offset = (&raw const user_peek).addr() - (&raw const user_text).addr();
        let left = self.start(TEXT + offset, 1, 2, address);
        (left.syndrome >> 26 != CLASS_SVC).then_some(left.syndrome)
    }

    /// A load at EL1 from `address` in the map that is there when the program makes a call: its syndrome if it faulted.
    pub fn load_at_entry(&self, address: usize) -> Option<u64> {
        // SAFETY: called within this address space with interrupts masked; loads from memory that is the kernel's, or faults.
        let syndrome = unsafe { user_map_load(address, self.leaves()) };
        (syndrome != 0).then_some(syndrome)
    }

    /// An address that is the kernel's alone, and one that both maps have.
    pub fn addresses() -> (usize, usize) {
        ((&raw const CALLS).addr(), (&raw const trampoline_start).addr())
    }
}
