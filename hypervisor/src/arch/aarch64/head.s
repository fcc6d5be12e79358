// The image's first bytes: the arm64 boot protocol's header (Linux, Documentation/arch/arm64/booting.rst),
// then the way from "MMU off, device tree in x0" to Rust.
//
// Offset asserted in boot::early.
.equ EARLY_BYTES, 256

// Before the MMU is on nothing here or below may use exclusives, and all that is written must be
// invalidated from the caches afterwards: stale clean lines may lie over it.

.section .head.text, "ax"
.global _start
_start:
    b       primary                     // code0
    .long   0                           // code1
    .quad   0                           // text_offset: any 2 MiB boundary will do
    .quad   __image_size                // with .bss
    .quad   0xa                         // flags: little endian, 4 KiB pages, anywhere in memory
    .quad   0
    .quad   0
    .quad   0
    .ascii  "ARM\x64"
    .long   0

primary:
    msr     daifset, #0xf
    mov     x19, x0                     // the device tree
    mrs     x24, cntpct_el0             // the moment of entry
    adrp    x20, __image_start          // where the loader put us: also what each relocation adds
    adrp    x21, __bss_start
    add     x21, x21, :lo12:__bss_start
    adrp    x22, __bss_end
    add     x22, x22, :lo12:__bss_end
1:  cmp     x21, x22
    b.hs    2f
    stp     xzr, xzr, [x21], #16
    b       1b

    // R_AARCH64_RELATIVE (1027) only: each entry is offset, info, addend.
2:  adrp    x21, __rela_start
    add     x21, x21, :lo12:__rela_start
    adrp    x22, __rela_end
    add     x22, x22, :lo12:__rela_end
3:  cmp     x21, x22
    b.hs    4f
    ldp     x1, x2, [x21], #16
    ldr     x3, [x21], #8
    cmp     w2, #1027
    b.ne    3b
    add     x3, x3, x20
    str     x3, [x1, x20]
    b       3b

    // Both copies of a written line must go: the loader may have left clean ones in the cache.
4:  adrp    x21, __text_end
    adrp    x22, __image_end
    dsb     sy                          // the stores above are in memory before lines are dropped
5:  dc      ivac, x21
    add     x21, x21, #16               // the smallest line that the architecture allows
    cmp     x21, x22
    b.lo    5b
    dsb     sy                          // the invalidation is complete before anything is read

    adrp    x21, boot_stack_top
    add     x21, x21, :lo12:boot_stack_top
    mrs     x1, CurrentEL
    cmp     x1, #(2 << 2)
    b.ne    6f
    msr     spsel, #1
    mov     sp, x21
    // SCTLR_EL2 may hold anything but M=0 and C=0: make it known. RES1 bits, caches and MMU off.
    ldr     x1, =0x30c50830
    msr     sctlr_el2, x1
    isb
    mov     x29, xzr
    mov     x30, xzr
    sub     sp, sp, #EARLY_BYTES        // boot::early::Early
    mov     x21, sp
    mov     x0, x19
    mov     x1, x21
    bl      early_map                   // x0 = TTBR0_EL2, x1 = TCR_EL2
    bl      mmu_on
    mov     x0, x19
    mov     x1, x24
    mov     x2, x21
    bl      boot_main
    b       .

6:  mov     sp, x21                     // whatever EL this is: say so and stop
    mov     x29, xzr
    mov     x30, xzr
    lsr     x1, x1, #2
    mov     x0, x19
    bl      wrong_exception_level
    b       .

// x0 = TTBR0_EL2, x1 = TCR_EL2. Turns the MMU and the caches on; the code runs at the same address after as before.
.global mmu_on
mmu_on:
    msr     ttbr0_el2, x0
    msr     tcr_el2, x1
    ldr     x2, ={EL2_MAIR}
    msr     mair_el2, x2
    dsb     nsh                         // table writes are seen by the walker
    tlbi    alle2                       // whatever a loader left
    ic      iallu
    dsb     nsh                         // both are complete before the first translated fetch
    isb
    ldr     x2, =0x30c5183d             // RES1 | M | C | SA | I | WXN=0: W^X is in the tables | A=0
    msr     sctlr_el2, x2
    isb                                 // fetches from here on are translated
    ret

// x0 = TTBR0_EL2 of the final map. Block sizes differ from the early map's, so the MMU is off while the table
// changes (break before make for the whole of it); no memory is touched meanwhile.
.global mmu_replace
mmu_replace:
    mrs     x2, sctlr_el2
    bic     x3, x2, #1
    dsb     ish                         // the new tables are written
    msr     sctlr_el2, x3
    isb
    tlbi    alle2
    dsb     nsh                         // no old translation is left
    msr     ttbr0_el2, x0
    isb
    msr     sctlr_el2, x2
    isb
    ret

// A secondary CPU: entered by PSCI or from a spin table with the MMU off.
// PSCI: x0 = the address of SecondaryStart. Spin table: x0 is not defined, so the address is looked up by MPIDR
// in `secondary_table` (written and cleaned to memory by the first CPU).
.global secondary_spin
secondary_spin:
    adrp    x1, secondary_table
    add     x1, x1, :lo12:secondary_table
    mrs     x2, mpidr_el1
    ldr     x3, =0xff00ffffff
    and     x2, x2, x3
1:  ldp     x3, x0, [x1], #16           // MPIDR affinity, SecondaryStart
    cbz     x0, 2f
    cmp     x3, x2
    b.ne    1b
    b       secondary
2:  wfe
    b       2b

.global secondary
secondary:
    msr     daifset, #0xf
    msr     spsel, #1
    mov     x19, x0
    ldr     x1, =0x30c50830
    msr     sctlr_el2, x1
    isb
    ldp     x0, x1, [x19]               // TTBR0_EL2, TCR_EL2
    bl      mmu_on
    ldp     x1, x0, [x19, #16]          // stack, Cpu
    mov     sp, x1
    mov     x29, xzr
    mov     x30, xzr
    bl      secondary_main
    b       .

.section .bss.early_tables, "aw", %nobits
.balign 4096
.global early_tables
early_tables:
    .space  16 * 4096
.global early_tables_end
early_tables_end:

.section .bss.secondary_table, "aw", %nobits
.balign 64
.global secondary_table
secondary_table:
    .space  129 * 16

.section .bss.boot_stack, "aw", %nobits
.balign 16
    .space  32768
boot_stack_top:
