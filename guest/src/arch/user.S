// EL0 and the way there and back, with the kernel in its map or not.
//
// What runs while only the user's map is there lies in this section, which is mapped alike in both maps. A kernel's root and
// its user's root are a pair: the user's is 64 bytes further on, and its ASID is one more, so that the way from
// one to the other needs no memory. A call may change x16 and x17.

    .macro to_kernel_map
    mrs     x16, ttbr0_el1
    bic     x16, x16, #(1 << 48)
    bic     x16, x16, #64
    msr     ttbr0_el1, x16
    isb
    .endm

    // Takes effect with the next ISB or ERET at the latest.
    .macro to_user_map
    mrs     x16, ttbr0_el1
    orr     x16, x16, #(1 << 48)
    orr     x16, x16, #64
    msr     ttbr0_el1, x16
    .endm

    // What the kernel's own vectors handle, in the kernel's map: without isolation this map is there already.
    .macro pass_on offset
    .balign 128
    to_kernel_map
    b       vectors + \offset
    .endm

    .macro user_vectors name
    .balign 2048
    .global vectors_\name
vectors_\name:
    .irp offset, 0, 0x80, 0x100, 0x180, 0x200, 0x280, 0x300, 0x380
    pass_on \offset
    .endr
    .balign 128
    b       entry_\name
    .irp offset, 0x480, 0x500, 0x580, 0x600, 0x680, 0x700, 0x780
    pass_on \offset
    .endr
    .endm

    // Entry by SVC, x8 = number: 0 answers from what lies at the stack's top, 1 needs the kernel's full map, others end the
    // task, and so does a fault.
    .macro user_entry name, at_entry, when_needed
entry_\name:
    .if \at_entry
    to_kernel_map
    .endif
    save_all
    mrs     x9, elr_el1
    mrs     x10, spsr_el1
    stp     x30, x9, [sp, #240]
    str     x10, [sp, #256]
    mrs     x9, esr_el1
    lsr     x9, x9, #26
    cmp     x9, #0x15               // SVC
    b.ne    leave_\name
    cmp     x8, #1
    b.hi    leave_\name
    b.eq    1f
    ldr     x0, [sp, #272]
    b       2f
1:
    .if \when_needed
    to_kernel_map
    .endif
    ldr     x9, =guest_syscall
    blr     x9
    .if \when_needed
    to_user_map
    isb
    .endif
2:  ldp     x30, x9, [sp, #240]
    ldr     x10, [sp, #256]
    msr     elr_el1, x9
    msr     spsr_el1, x10
    ldr     x1, [sp, #8]
    restore_others
    .if \at_entry
    to_user_map
    .endif
    eret
leave_\name:
    .if \when_needed
    to_kernel_map
    .endif
    b       user_left
    .endm

    .section .text.trampoline, "ax"
    .balign 4096
    .global trampoline_start
trampoline_start:
    user_vectors off
    user_vectors on
    user_vectors deferred
    user_entry off, 0, 0
    user_entry on, 1, 0
    user_entry deferred, 0, 1

// x0 = the user's first instruction, x1 = its x19, x2 = its x8, x3 = its x21, x4 = stack for its calls: at the
// top the answer of call 0 and room for this stack's pointer, x5 = vectors, x6 = whether to leave the kernel's map.
    .global user_run
user_run:
    stp     x29, x30, [sp, #-112]!
    stp     x27, x28, [sp, #16]
    stp     x25, x26, [sp, #32]
    stp     x23, x24, [sp, #48]
    stp     x21, x22, [sp, #64]
    stp     x19, x20, [sp, #80]
    mrs     x9, vbar_el1
    str     x9, [sp, #96]
    mov     x9, sp
    str     x9, [x4, #8]
    mov     sp, x4
    msr     vbar_el1, x5
    msr     elr_el1, x0
    mov     x9, #0x3c0              // EL0, all masked
    msr     spsr_el1, x9
    mov     x19, x1
    mov     x8, x2
    mov     x20, xzr
    mov     x21, x3
    isb
    cbz     x6, 1f
    to_user_map
1:  eret

// From an entry, in the kernel's map: returns from user_run with x0 = the syndrome, x1 = the user's x20.
user_left:
    mrs     x0, esr_el1
    ldr     x1, [sp, #160]
    ldr     x9, [sp, #280]
    mov     sp, x9
    ldr     x9, [sp, #96]
    msr     vbar_el1, x9
    isb
    ldp     x19, x20, [sp, #80]
    ldp     x21, x22, [sp, #64]
    ldp     x23, x24, [sp, #48]
    ldp     x25, x26, [sp, #32]
    ldp     x27, x28, [sp, #16]
    ldp     x29, x30, [sp], #112
    ret

// A load at EL1 from x0 in the user's map if x1 is not 0, else in this one; x0 = the syndrome, 0 if it didn't fault.
    .global user_map_load
user_map_load:
    mrs     x12, vbar_el1
    mrs     x13, ttbr0_el1
    adr     x9, probe_vectors
    msr     vbar_el1, x9
    cbz     x1, 1f
    to_user_map
1:  isb
    mov     x11, xzr
    ldr     x9, [x0]
    dsb     sy
    isb
    msr     ttbr0_el1, x13
    msr     vbar_el1, x12
    isb
    mov     x0, x11
    ret
    .balign 2048
probe_vectors:
    .skip   0x200
    mrs     x11, esr_el1
    mrs     x9, elr_el1
    add     x9, x9, #4
    msr     elr_el1, x9
    eret
    .ltorg
    .balign 4096
    .global trampoline_end
trampoline_end:

// The user's program, at another address than here: x19 calls of number x8, whose answers it adds up.
    .section .text.user, "ax"
    .balign 4096
    .global user_text
user_text:
1:  svc     #0
    add     x20, x20, x0
    subs    x19, x19, #1
    b.ne    1b
    mov     x8, #2
    svc     #0
// Loads from x21.
    .global user_peek
user_peek:
    ldr     x9, [x21]
    mov     x8, #2
    svc     #0
    .balign 4096
    .text
