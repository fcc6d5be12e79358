// For the self-check: registers full of patterns, something that leaves for the hypervisor, and what changed.
// Each returns a mask in x0: bit n set when xn (or vn) was not as before. x18 counts as any other.

    .macro pattern n
    mov     x\n, #(0x100 + \n)
    movk    x\n, #0x5a5a, lsl #48
    .endm

    .macro enter
    stp     x29, x30, [sp, #-112]!
    stp     x27, x28, [sp, #16]
    stp     x25, x26, [sp, #32]
    stp     x23, x24, [sp, #48]
    stp     x21, x22, [sp, #64]
    stp     x19, x20, [sp, #80]
    .irp    n, 2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30
    pattern \n
    .endr
    .endm

    // x0 and x1 are free by now.
    .macro verify
    mov     x1, #0
    .irp    n, 2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30
    mov     x0, #(0x100 + \n)
    movk    x0, #0x5a5a, lsl #48
    cmp     x\n, x0
    cset    x0, ne
    lsl     x0, x0, #\n
    orr     x1, x1, x0
    .endr
    mov     x0, x1
    ldp     x19, x20, [sp, #80]
    ldp     x21, x22, [sp, #64]
    ldp     x23, x24, [sp, #48]
    ldp     x25, x26, [sp, #32]
    ldp     x27, x28, [sp, #16]
    ldp     x29, x30, [sp], #112
    .endm

    .text
// (function): HVC; x0 to x3 are the call's.
    .global registers_hvc
registers_hvc:
    enter
    hvc     #0
    pattern 2                       // x0 to x3 are for results
    pattern 3
    verify
    ret

// (address): loads and stores back one device register.
    .global registers_mmio
registers_mmio:
    enter
    ldr     w1, [x0]
    str     w1, [x0]
    verify
    ret

// (): a trapped system register.
    .global registers_system
registers_system:
    enter
    mrs     x0, id_aa64pfr0_el1
    mrs     x1, id_aa64isar0_el1
    verify
    ret

// (deadline): spins until the counter is there; interrupts of whoever is above come in between.
    .global registers_spin
registers_spin:
    enter
    mov     x1, x0
1:  mrs     x0, cntvct_el0
    cmp     x0, x1
    b.lo    1b
    verify
    ret

// (): waits for an interrupt, masked.
    .global registers_wait
registers_wait:
    enter
    dsb     sy
    wfi
    verify
    ret

    .arch_extension fp
    .arch_extension simd

// (pattern, deadline, wait): vector registers and FPCR hold their values until the deadline, over waits.
    .global vectors_hold
vectors_hold:
    stp     x29, x30, [sp, #-32]!
    mov     x29, sp
    stp     x19, x20, [sp, #16]
    mov     x19, x0
    mov     x9, #0x00c00000         // FPCR: round towards zero
    msr     fpcr, x9
    .irp    n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    add     x9, x19, #\n
    mvn     x10, x9
    mov     v\n\().d[0], x9
    mov     v\n\().d[1], x10
    .endr
1:  mrs     x9, cntvct_el0
    cmp     x9, x1
    b.hs    2f
    mrs     x10, id_aa64pfr0_el1
    yield
    b       1b
2:  cbz     x2, 3f
    dsb     sy
    wfi
3:  mov     x0, #0
    .irp    n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    add     x9, x19, #\n
    mvn     x10, x9
    mov     x11, v\n\().d[0]
    mov     x12, v\n\().d[1]
    cmp     x9, x11
    ccmp    x10, x12, #0, eq
    cset    x11, ne
    lsl     x11, x11, #\n
    orr     x0, x0, x11
    .endr
    mrs     x9, fpcr
    mov     x10, #0x00c00000
    cmp     x9, x10
    cset    x9, ne
    orr     x0, x0, x9, lsl #32
    msr     fpcr, xzr
    ldp     x19, x20, [sp, #16]
    ldp     x29, x30, [sp], #32
    ret
    .arch_extension nosimd
    .arch_extension nofp
