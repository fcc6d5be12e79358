// The image header and the first instructions of each CPU.
//
// Nothing is written to memory before the MMU and the caches are on: the page tables below are part of the
// image, which the boot protocol wants cleaned to the point of coherency, and the first store is made through
// the cache. So neither a dirty line that a loader left nor an exclusive on uncached memory can do harm.

    .section .head, "ax"
    .global _start
_start:
    b       primary_entry
    .long   0
    .quad   __text_offset
    .quad   __image_size
    .quad   2                       // little endian, 4 KiB pages, placed near the start of RAM
    .quad   0
    .quad   0
    .quad   0
    .ascii  "ARM\x64"
    .long   0

    .text
primary_entry:
    mrs     x21, cntvct_el0
    mov     x20, x0                 // device tree
    mov     x19, #0                 // CPU 0
    bl      to_el1
    adr     x0, _start              // linked for one address: anywhere else only wrong things would happen
    ldr     x1, =_start
    cmp     x0, x1
    b.ne    misplaced
    bl      mmu_on

    ldr     x0, =__bss_start
    ldr     x1, =__bss_end
1:  cmp     x0, x1
    b.hs    2f
    stp     xzr, xzr, [x0], #16
    b       1b
2:  bl      set_stack
    mov     x0, x20
    mov     x1, x21
    bl      guest_main
    b       .

// Entered through PSCI CPU_ON with the CPU's index in x0. The counter is read first: `cpu_on` measures to here.
    .global secondary_entry
secondary_entry:
    mrs     x21, cntvct_el0
    mov     x19, x0
    bl      to_el1
    bl      mmu_on
    bl      set_stack
    mov     x0, x19
    mov     x1, x21
    bl      guest_secondary
    b       .

// SP = end of this CPU's slice of the boot stacks, x19 = its index; frame chain ends here.
set_stack:
    ldr     x0, =boot_stacks
    add     x1, x19, #1
    add     x0, x0, x1, lsl #14
    mov     sp, x0
    mov     x29, xzr
    mov     x1, #1
    msr     spsel, x1
    mov     sp, x0
    ldr     x0, =vectors
    msr     vbar_el1, x0
    isb
    ret

// Down to EL1 when a machine without a hypervisor started us at EL2 (QEMU with virtualization=on).
to_el1:
    mrs     x0, CurrentEL
    cmp     x0, #(2 << 2)
    b.eq    1f
    b.hi    misplaced               // EL3: not a machine that follows the boot protocol
    ret
1:  mov     x0, #0xa0000000         // HCR_EL2: RW, and HCD: nobody is there to answer an HVC
    msr     hcr_el2, x0
    isb
    mrs     x0, midr_el1
    msr     vpidr_el2, x0
    mrs     x0, mpidr_el1
    msr     vmpidr_el2, x0
    mov     x0, #3                  // EL1 may use the physical counter and timer
    msr     cnthctl_el2, x0
    msr     cntvoff_el2, xzr
    mov     x0, #0x33ff             // no FP trap
    msr     cptr_el2, x0
    msr     hstr_el2, xzr
    msr     vttbr_el2, xzr
    mrs     x0, id_aa64pfr0_el1
    ubfx    x0, x0, #24, #4         // GIC system registers
    cbz     x0, 2f
    mov     x0, #0xf
    msr     S3_4_C12_C9_5, x0       // ICC_SRE_EL2
    isb
    msr     S3_4_C12_C11_0, xzr     // ICH_HCR_EL2
2:  mov     x0, #0x3c5              // EL1h, all masked
    msr     spsr_el2, x0
    msr     elr_el2, x30
    eret

misplaced:
    mov     w0, #0x0008             // PSCI SYSTEM_OFF; there is no console to say more on
    movk    w0, #0x8400, lsl #16
    hvc     #0
1:  wfi
    b       1b

mmu_on:
    tlbi    vmalle1
    ic      iallu
    ldr     x0, =0x04ff             // MAIR: 0 normal write-back, 1 device nGnRE
    msr     mair_el1, x0
    // TCR: T0SZ 32 (4 GiB), walks write-back inner shareable, 4 KiB, no TTBR1, 32-bit output addresses.
    ldr     x0, =(32 | (1 << 8) | (1 << 10) | (3 << 12) | (1 << 23))
    mrs     x1, id_aa64mmfr0_el1
    ubfx    x1, x1, #4, #4
    cmp     x1, #2
    b.ne    1f
    orr     x0, x0, #(1 << 36)      // 16-bit ASIDs
1:  msr     tcr_el1, x0
    ldr     x0, =kernel_root
    msr     ttbr0_el1, x0
    mov     x0, #(3 << 20)          // CPACR_EL1.FPEN: FP is used by the self-check alone
    msr     cpacr_el1, x0
    dsb     sy
    isb
    ldr     x0, =0x30d0180d         // RES1 | I | SA | C | M
    msr     sctlr_el1, x0
    isb
    ret
    .ltorg

// Identity map. Every address space shares the two tables below the root; a task's own root adds a third.
    .section .data.tables, "aw"
    .balign 4096
    .global kernel_device_table
kernel_device_table:                // 0 to 1 GiB: filled by 2 MiB device blocks as the device tree names them
    .fill   512, 8, 0
    .global kernel_ram_table
kernel_ram_table:                   // 1 to 2 GiB: blocks, read-write, never executed
    .quad   kernel_image_table + 3
    .set    i, 1
    .rept   511
    .quad   0x0060000000000701 + 0x40000000 + (i << 21)
    .set    i, i + 1
    .endr
    .global kernel_image_table
kernel_image_table:                 // the image's 2 MiB by pages: tightened to W^X once Rust runs
    .set    i, 0
    .rept   512
    .quad   0x0040000000000703 + 0x40000000 + (i << 12)
    .set    i, i + 1
    .endr
    .balign 64
    .global kernel_root
kernel_root:
    .quad   kernel_device_table + 3
    .quad   kernel_ram_table + 3
    .quad   0
    .quad   0

    .section .bss.stacks, "aw", %nobits
    .balign 4096
    .global boot_stacks
boot_stacks:
    .skip   8 << 14
