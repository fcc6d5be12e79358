// EL2's exception vectors (Arm ARM D1.3.1), the exit from a guest and the way back.
//
// While a guest runs, SP_EL2 points to its vCPU's Context, so that an exit needs no scratch register:
// x0..x30 go to the Context's start, then SP becomes this CPU's stack (Context.cpu_stack).
// ELR_EL2, SPSR_EL2 and the syndrome stay in their registers: only a vCPU switch saves them.

// Offsets in Context and FaultArea, asserted where these are defined.
.equ CONTEXT_STACK, 248
.equ FAULT_STACK, 0
.equ FAULT_SP, 8
.equ FAULT_X, 16

.macro save_guest
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
    ldr     x1, [sp, #CONTEXT_STACK]
    str     x30, [sp, #240]
    mov     x0, sp
    mov     sp, x1
    mov     x29, xzr                    // a backtrace ends here
.endm

// A lower EL's exception: handled by the function, which returns the Context to enter.
.macro from_guest function
    .balign 128
    save_guest
    adr     x30, enter_guest
    b       \function
.endm

// An exception of EL2 itself is a fault of ours. It is reported from this CPU's emergency stack, as its own may be what
// broke. x0 goes to SP_EL0: a guest's, and lost, which no longer matters.
.macro from_el2 kind
    .balign 128
    msr     sp_el0, x0
    mrs     x0, tpidr_el2               // FaultArea: the start of this CPU's Cpu
    cbz     x0, .                       // before there is one nothing can be said
    str     x1, [x0, #FAULT_X + 8]
    mov     x1, #\kind
    b       fatal
.endm

// The table. `traced`: the end of the functions' names.
.macro table traced
    from_el2 0                          // Current EL with SP0
    from_el2 1
    from_el2 2
    from_el2 3
    from_el2 4                          // Current EL with SPx: synchronous,
    from_el2 5                          // IRQ (masked at EL2: never),
    from_el2 6                          // FIQ,
    from_el2 7                          // SError
    from_guest exit_sync\traced         // Lower EL, AArch64
    from_guest exit_irq\traced
    from_guest exit_fiq\traced
    from_guest exit_serror\traced
    from_guest exit_sync\traced         // Lower EL, AArch32: EL0 of a guest
    from_guest exit_irq\traced
    from_guest exit_fiq\traced
    from_guest exit_serror\traced
.endm

.section .text.vectors, "ax"
.balign 2048
.global vectors
vectors:
    table

// Where the machine has a trace (`trace=on`).
.balign 2048
.global vectors_traced
vectors_traced:
    table _traced

.balign 64
.global enter_guest
// x0 = the Context to enter.
enter_guest:
    mov     sp, x0
    ldp     x2, x3, [x0, #16]
    ldp     x4, x5, [x0, #32]
    ldp     x6, x7, [x0, #48]
    ldp     x8, x9, [x0, #64]
    ldp     x10, x11, [x0, #80]
    ldp     x12, x13, [x0, #96]
    ldp     x14, x15, [x0, #112]
    ldp     x16, x17, [x0, #128]
    ldp     x18, x19, [x0, #144]
    ldp     x20, x21, [x0, #160]
    ldp     x22, x23, [x0, #176]
    ldp     x24, x25, [x0, #192]
    ldp     x26, x27, [x0, #208]
    ldp     x28, x29, [x0, #224]
    ldr     x30, [x0, #240]
    ldp     x0, x1, [x0]
    eret
    // An ERET may be speculated past.
    dsb     nsh
    isb

// x0 = FaultArea, x1 = which vector; the old x0 is in SP_EL0, the old x1 in its place.
fatal:
    stp     x2, x3, [x0, #FAULT_X + 16]
    stp     x4, x5, [x0, #FAULT_X + 32]
    stp     x6, x7, [x0, #FAULT_X + 48]
    stp     x8, x9, [x0, #FAULT_X + 64]
    stp     x10, x11, [x0, #FAULT_X + 80]
    stp     x12, x13, [x0, #FAULT_X + 96]
    stp     x14, x15, [x0, #FAULT_X + 112]
    stp     x16, x17, [x0, #FAULT_X + 128]
    stp     x18, x19, [x0, #FAULT_X + 144]
    stp     x20, x21, [x0, #FAULT_X + 160]
    stp     x22, x23, [x0, #FAULT_X + 176]
    stp     x24, x25, [x0, #FAULT_X + 192]
    stp     x26, x27, [x0, #FAULT_X + 208]
    stp     x28, x29, [x0, #FAULT_X + 224]
    str     x30, [x0, #FAULT_X + 240]
    mrs     x2, sp_el0
    str     x2, [x0, #FAULT_X]
    mov     x2, sp
    str     x2, [x0, #FAULT_SP]
    ldr     x2, [x0, #FAULT_STACK]
    mov     sp, x2
    bl      el2_fault
    b       .
