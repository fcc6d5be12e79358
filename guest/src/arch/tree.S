// Call trees of a given depth that record where they were called from, or don't: each is one function that calls itself.

// scs: keeps return addresses on a second stack as well, at x18 (shadow call stack), and returns to what that one says.
// pac: signs the return address in the frame. record: 0 nothing, 1 along the frames, 2 from the second stack.
// x0 = depth, x1 = where a trace goes, x2 = turns of other work in the leaf, x4 = x29 and x5 = x18 at the root's entry.
// The leaf returns where its trace ends.
    .macro tree name, scs, pac, record
    .global tree_\name, back_\name
tree_\name:
    .if \scs
    str     x30, [x18], #8
    .endif
    .if \pac
    hint    #25                     // paciasp
    .endif
    stp     x29, x30, [sp, #-32]!
    mov     x29, sp
    str     x19, [sp, #16]
    subs    x0, x0, #1
    b.eq    1f
    mov     x19, x0
    bl      tree_\name
back_\name:
    b       9f
1:  cbz     x2, 3f
2:  subs    x2, x2, #1
    b.ne    2b
3:
    .if \record == 1
    mov     x9, x29
4:  ldp     x10, x30, [x9]
    .if \pac
    hint    #7                      // xpaclri
    .endif
    str     x30, [x1], #8
    cmp     x10, x9                 // a caller's frame lies higher
    b.ls    5f
    mov     x9, x10
    cmp     x9, x4
    b.ne    4b
    .endif
    .if \record == 2
    mov     x9, x18
4:  ldr     x10, [x9, #-8]!
    str     x10, [x1], #8
    cmp     x9, x5
    b.hi    4b
    .endif
5:  mov     x0, x1
9:  ldr     x19, [sp, #16]
    ldp     x29, x30, [sp], #32
    .if \pac
    hint    #29                     // autiasp
    .endif
    .if \scs
    ldr     x30, [x18, #-8]!
    .endif
    ret
    .endm

    .text
    tree plain, 0, 0, 0
    tree frames, 0, 0, 1
    tree kept, 1, 0, 0
    tree shadow, 1, 0, 2
    tree plain_signed, 0, 1, 0
    tree frames_signed, 0, 1, 1
    tree kept_signed, 1, 1, 0
    tree shadow_signed, 1, 1, 2

// x0 = tree, x1 = depth, x2 = trace, x3 = turns, x4 = second stack: the tree is called once.
    .global tree_call
tree_call:
    stp     x29, x30, [sp, #-32]!
    stp     x19, x18, [sp, #16]
    mov     x29, sp
    mov     x9, x0
    mov     x0, x1
    mov     x1, x2
    mov     x2, x3
    mov     x18, x4
    mov     x5, x4
    mov     x4, x29
    blr     x9
    ldp     x19, x18, [sp, #16]
    ldp     x29, x30, [sp], #32
    ret
