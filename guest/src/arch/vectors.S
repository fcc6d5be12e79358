// EL1 vectors (Arm ARM D1.3.1.5), the interrupt path and the task switch.

    .macro save_all
    sub     sp, sp, #272
    stp     x0, x1, [sp, #0]
    stp     x2, x3, [sp, #16]
    stp     x4, x5, [sp, #32]
    stp     x6, x7, [sp, #48]
    stp     x8, x9, [sp, #64]
    stp     x10, x11, [sp, #80]
    stp     x12, x13, [sp, #96]
    stp     x14, x15, [sp, #112]
    stp     x16, x17, [sp, #128]
    stp     x18, x19, [sp, #144]
    stp     x20, x21, [sp, #160]
    stp     x22, x23, [sp, #176]
    stp     x24, x25, [sp, #192]
    stp     x26, x27, [sp, #208]
    stp     x28, x29, [sp, #224]
    .endm

    // All that save_all has saved but x0 and x1.
    .macro restore_others
    ldp     x2, x3, [sp, #16]
    ldp     x4, x5, [sp, #32]
    ldp     x6, x7, [sp, #48]
    ldp     x8, x9, [sp, #64]
    ldp     x10, x11, [sp, #80]
    ldp     x12, x13, [sp, #96]
    ldp     x14, x15, [sp, #112]
    ldp     x16, x17, [sp, #128]
    ldp     x18, x19, [sp, #144]
    ldp     x20, x21, [sp, #160]
    ldp     x22, x23, [sp, #176]
    ldp     x24, x25, [sp, #192]
    ldp     x26, x27, [sp, #208]
    ldp     x28, x29, [sp, #224]
    add     sp, sp, #272
    .endm

    .macro exception kind
    .balign 128
    save_all
    mov     x1, #\kind
    b       exception_entry
    .endm

    .text
    .balign 2048
    .global vectors
vectors:
    exception 0                     // current EL with SP_EL0: never used
    exception 1
    exception 2
    exception 3
    exception 4                     // synchronous

    // Interrupt. What a call may change is saved, then the time is taken: the micro loads measure to here.
    .balign 128
    stp     x29, x30, [sp, #-192]!
    stp     x0, x1, [sp, #16]
    stp     x2, x3, [sp, #32]
    stp     x4, x5, [sp, #48]
    stp     x6, x7, [sp, #64]
    stp     x8, x9, [sp, #80]
    stp     x10, x11, [sp, #96]
    stp     x12, x13, [sp, #112]
    stp     x14, x15, [sp, #128]
    stp     x16, x17, [sp, #144]
    str     x18, [sp, #160]
    mrs     x0, cntvct_el0
    b       interrupt_entry

    exception 6
    exception 7                     // SError
    exception 8                     // lower EL: there is none
    exception 9
    exception 10
    exception 11
    exception 12
    exception 13
    exception 14
    exception 15

interrupt_entry:
    mrs     x1, elr_el1
    mrs     x2, spsr_el1
    stp     x1, x2, [sp, #168]
    mov     x29, sp
    bl      guest_interrupt
    ldp     x1, x2, [sp, #168]
    msr     elr_el1, x1
    msr     spsr_el1, x2
    ldp     x0, x1, [sp, #16]
    ldp     x2, x3, [sp, #32]
    ldp     x4, x5, [sp, #48]
    ldp     x6, x7, [sp, #64]
    ldp     x8, x9, [sp, #80]
    ldp     x10, x11, [sp, #96]
    ldp     x12, x13, [sp, #112]
    ldp     x14, x15, [sp, #128]
    ldp     x16, x17, [sp, #144]
    ldr     x18, [sp, #160]
    ldp     x29, x30, [sp], #192
    eret

exception_entry:
    mrs     x2, elr_el1
    stp     x30, x2, [sp, #240]
    mrs     x2, spsr_el1
    add     x3, sp, #272
    stp     x2, x3, [sp, #256]
    mov     x0, sp
    bl      guest_exception
    ldp     x30, x2, [sp, #240]
    msr     elr_el1, x2
    ldr     x2, [sp, #256]
    msr     spsr_el1, x2
    ldp     x0, x1, [sp, #0]
    restore_others
    eret

// x0 = where to put this stack pointer, x1 = the one to go on with. What a call preserves lies on the stack.
    .global switch_stacks
switch_stacks:
    stp     x29, x30, [sp, #-96]!
    stp     x27, x28, [sp, #16]
    stp     x25, x26, [sp, #32]
    stp     x23, x24, [sp, #48]
    stp     x21, x22, [sp, #64]
    stp     x19, x20, [sp, #80]
    mov     x9, sp
    str     x9, [x0]
    mov     sp, x1
    ldp     x19, x20, [sp, #80]
    ldp     x21, x22, [sp, #64]
    ldp     x23, x24, [sp, #48]
    ldp     x25, x26, [sp, #32]
    ldp     x27, x28, [sp, #16]
    ldp     x29, x30, [sp], #96
    ret

// A new task's first return from switch_stacks ends here: x19 = its number.
    .global task_start
task_start:
    mov     x0, x19
    bl      guest_task
    b       .
