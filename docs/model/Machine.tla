------------------------------ MODULE Machine ------------------------------
(* What both allocators have around them: CPUs and their TLBs, the world switch (hypervisor/src/scheduler/binding.rs),
   changes of a VM's tables, ends of VMs. Vmid.tla and Reclaim.tla put their own variables beside these.

   Every access to memory that CPUs share is a step of its own, and so is every write of VTTBR_EL2 and
   every CPU's part of a broadcast invalidation. docs/model/README.md is the way in. *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Cpus,         \* numbers 0..n-1
    Vms,          \* model values, a symmetry set
    Vmids,        \* model values, a symmetry set: the VMIDs that may be given to VMs, 0 is not among them
    None,         \* a model value: no VM, VMID 0
    Pinned,       \* the VMs whose VMID is theirs for good: a subset of Vms
    VcpusPerVm,   \* CPUs that may run one VM at once
    LateIds,      \* whether others may see a VM's new id late: until the DSB that follows it, or the lock
    Publishes,    \* whether a DSB stands between a new id's store and the first walk under it
    WalksAtEl2,   \* whether a CPU walks for the VTTBR_EL2 that it holds while it executes at EL2, too
    Parking,      \* schedule-out parks VTTBR_EL2 "first" (and synchronizes), "late" (no ISB), or "never"
    Walks,        \* "eager": as soon and as often as they can (see Tlb); "steps": as steps of their own; "none"
    Edits,        \* changes of a VM's tables that are tried: a subset of {"host", "guest"}, once in a behaviour
    Ends,         \* whether VMs end, and new ones begin in their place
    Fault         \* "none", or what is done wrong (see README.md)

VARIABLES
    cell,      \* for each VM: its id
    prev,      \* for each VM: its id before that
    behind,    \* pairs of a CPU and a VM: the CPU may still read the VM's previous id
    active,    \* for each CPU: its active slot
    reserved,  \* for each CPU: its reserved id
    lock,      \* the CPU that holds the lock, or None
    todo,      \* CPUs that the lock's holder has yet to go to
    pc,        \* for each CPU: what it does next
    vm,        \* for each CPU: the VM that this is about, or None
    rid,       \* for each CPU: the id in its register
    vttbr,     \* for each CPU: whose tables, and the VMID, or Parked
    cached,    \* for each CPU: the entries of its TLB
    life,      \* for each VM: "alive", "ending", "ended"
    edit       \* the change of tables that is under way, or done

ids == <<cell, prev, behind>>
slots == <<active, reserved>>
held == <<lock, todo>>
shared == <<ids, slots, held>>
world == <<vttbr, cached, life, edit>>
machine == <<shared, pc, vm, rid, world>>

(* ---- Ids: a generation, or a tenure's number, and a VMID. Those without a VMID mean other things (vmid/id.rs). ---- *)

Num(id) == id[1]
Vmid(id) == id[2]
Zero == <<0, None>>   \* in a cell: never had one. In a slot: a rollover, or the first shortage, has been here
Idle == <<1, None>>   \* in a slot: the CPU runs no VM, and has missed no rollover
Out == <<2, None>>    \* in a slot: a rollover has been here, and then the CPU has left its guest
IsLive(id) == Vmid(id) # None

Min(S) == CHOOSE x \in S : \A y \in S : x <= y
Goto(c, label) == pc' = [pc EXCEPT ![c] = label]
Running(v) == {c \in Cpus : vm[c] = v}

\* What pinned VMs have is never free.
OfPinned == {Vmid(cell[v]) : v \in Pinned}

(* ---- The TLBs. An entry: whose, under which VMID, and whether it is from before the change of tables. ---- *)

Parked == <<None, None>>

\* What the CPU's walker makes of VTTBR_EL2, at any time that it likes to.
Walk(c) ==
    IF Walks # "none" /\ vttbr[c][1] # None /\ (WalksAtEl2 \/ pc[c] = "guest")
    THEN {<<vttbr[c][1], vttbr[c][2], FALSE>>} ELSE {}

(* Nothing in the algorithm looks into a TLB, and no invariant is broken by an entry that is missing. So a TLB that
   has all it can have, as soon as it can, breaks an invariant in every behaviour in which some lazier one would: if
   eager, what VTTBR_EL2 leads to is always there, also right after an invalidation, and stays when VTTBR_EL2 is
   changed. Else each walk is a step that may come or not: the same, in more states (checked, README.md). *)
Eager == Walks = "eager"
Tlb(c) == cached[c] \cup (IF Eager THEN Walk(c) ELSE {})
Keep(c) == IF Eager THEN [cached EXCEPT ![c] = @ \cup Walk(c)] ELSE cached
DropVmid(c, x) == [cached EXCEPT ![c] = {e \in @ : e[2] # x}]
DropAll(c) == [cached EXCEPT ![c] = {}]

(* ---- A VM's id: what a relaxed load may return, and a store that others may go on missing. ---- *)

ReadableIds(c, v) == {cell[v]} \cup (IF <<c, v>> \in behind THEN {prev[v]} ELSE {})

SetId(c, v, id) ==
    /\ cell' = [cell EXCEPT ![v] = id]
    /\ IF LateIds THEN /\ prev' = [prev EXCEPT ![v] = cell[v]]
                       /\ behind' = {b \in behind : b[2] # v} \cup {<<d, v>> : d \in Cpus \ {c}}
                  ELSE UNCHANGED <<prev, behind>>

(* ---- A CPU and a guest. ---- *)

\* It goes on with what an allocator's fast path does first.
TakesUp(c, first) ==
    /\ pc[c] = "idle"
    /\ \E v \in Vms :
        /\ life[v] = "alive" /\ Cardinality(Running(v)) < VcpusPerVm
        /\ vm' = [vm EXCEPT ![c] = v]
    /\ Goto(c, first)
    /\ UNCHANGED <<shared, rid, world>>

Enters(c) ==
    /\ pc[c] = "bind"
    /\ vttbr' = [vttbr EXCEPT ![c] = <<vm[c], Vmid(rid[c])>>]
    /\ cached' = Keep(c)
    /\ rid' = [rid EXCEPT ![c] = Zero]
    /\ Goto(c, "guest")
    /\ UNCHANGED <<shared, vm, life, edit>>

\* The guest's exit after which another vCPU may come.
Leaves(c) ==
    /\ pc[c] = "guest"
    /\ cached' = Keep(c)
    /\ vttbr' = IF Parking = "first" THEN [vttbr EXCEPT ![c] = Parked] ELSE vttbr
    /\ Goto(c, "schedule_out")
    /\ UNCHANGED <<shared, vm, rid, life, edit>>

GoesIdle(c) == Goto(c, "idle") /\ vm' = [vm EXCEPT ![c] = None]

(* ---- A change of a VM's tables: an exit's handler unmaps a page of its own VM or of another ("host"), or a guest
        does so in its own tables ("guest"). Once in a behaviour. ---- *)

NoEdit == [state |-> "none", kind |-> "none", vm |-> None, vmid |-> None, todo |-> {}, back |-> Parked]

\* All entries that there are, and those that a walker has in hand, are from the old table.
Outdate(v) ==
    cached' = [c \in Cpus |->
        {<<e[1], e[2], e[3] \/ e[1] = v>> : e \in cached[c] \cup {w \in (IF Eager THEN Walk(c) ELSE {}) : w[1] = v}}]

\* The CPU that is at it.
Edit(c, state) == pc[c] = "edit" /\ edit.state = state

ChangeBegins(c) ==
    /\ pc[c] = "guest" /\ edit = NoEdit
    /\ \E kind \in Edits, v \in Vms :
        /\ life[v] = "alive" /\ (kind = "guest" => v = vm[c])
        /\ LET early == kind = "host" /\ Fault = "vmid-before-change"
           IN /\ edit' = [NoEdit EXCEPT !.kind = kind, !.vm = v, !.back = vttbr[c],
                            !.state = IF early THEN "change" ELSE "changed",
                            !.vmid = IF early THEN Vmid(cell[v]) ELSE None]
              /\ IF early THEN cached' = Keep(c) ELSE Outdate(v)
    /\ Goto(c, "edit")
    /\ UNCHANGED <<shared, vm, rid, vttbr, life>>

ChangeIsMade(c) ==
    /\ Edit(c, "change")
    /\ Outdate(edit.vm)
    /\ edit' = [edit EXCEPT !.state = "known"]
    /\ UNCHANGED <<shared, pc, vm, rid, vttbr, life>>

\* After the DSB: under which VMID the VM's entries are. A guest's own TLBI takes that of the CPU.
ChangeReadsVmid(c) ==
    /\ Edit(c, "changed")
    /\ \E x \in (IF edit.kind = "guest" THEN {vttbr[c][2]} ELSE {Vmid(id) : id \in ReadableIds(c, edit.vm)}) :
        edit' = [edit EXCEPT !.state = "known", !.vmid = x]
    /\ UNCHANGED <<shared, pc, vm, rid, vttbr, cached, life>>

\* A TLBI by VMID takes it from VTTBR_EL2: with an empty root, unless it is there anyway.
ChangeLoadsVmid(c) ==
    /\ Edit(c, "known")
    /\ vttbr' = [vttbr EXCEPT ![c] =
        IF edit.vmid = None \/ @ = <<edit.vm, edit.vmid>> THEN @
        ELSE <<IF Fault = "live-root-for-tlbi" THEN edit.vm ELSE None, edit.vmid>>]
    /\ cached' = Keep(c)
    /\ edit' = [edit EXCEPT !.state = "loaded", !.todo = IF edit.vmid = None THEN {} ELSE Cpus]
    /\ UNCHANGED <<shared, pc, vm, rid, life>>

ChangeFlushes(c) ==
    /\ Edit(c, "loaded")
    /\ \E d \in edit.todo :
        /\ cached' = DropVmid(d, edit.vmid)
        /\ edit' = [edit EXCEPT !.todo = @ \ {d}]
    /\ UNCHANGED <<shared, pc, vm, rid, vttbr, life>>

ChangeEnds(c) ==
    /\ Edit(c, "loaded") /\ edit.todo = {}
    /\ cached' = Keep(c)
    /\ vttbr' = [vttbr EXCEPT ![c] = edit.back]
    /\ edit' = [NoEdit EXCEPT !.state = "done", !.vm = edit.vm]
    /\ Goto(c, "guest")
    /\ UNCHANGED <<shared, vm, rid, life>>

(* ---- A VM's end, on a CPU that runs nothing; then a new VM in its place. ---- *)

VmEnds(c) ==
    /\ Ends /\ pc[c] = "idle"
    /\ \E v \in Vms :
        /\ life[v] = "alive" /\ Running(v) = {} /\ cell[v] # Zero
        /\ ~(edit.vm = v /\ edit.state # "done")
        /\ vm' = [vm EXCEPT ![c] = v]
        /\ life' = [life EXCEPT ![v] = "ending"]
    /\ Goto(c, "end_lock")
    /\ UNCHANGED <<shared, rid, vttbr, cached, edit>>

\* Under the lock: its id is taken from it, if it isn't its own for good. Who finds the VM's successor in a queue sees all of this.
TakesId(c) ==
    /\ IF vm[c] \in Pinned THEN UNCHANGED <<cell, prev>>
       ELSE cell' = [cell EXCEPT ![vm[c]] = Zero] /\ prev' = [prev EXCEPT ![vm[c]] = Zero]
    /\ behind' = {b \in behind : b[1] # c /\ b[2] # vm[c]}

\* What is left of the ended one is nobody's, and must not be met by its successor either.
Begins(v) ==
    /\ life[v] = "ended"
    /\ life' = [life EXCEPT ![v] = "alive"]
    /\ cached' = [c \in Cpus |-> {IF e[1] = v THEN <<None, e[2], e[3]>> ELSE e : e \in cached[c]}]
    /\ UNCHANGED <<shared, pc, vm, rid, vttbr, edit>>

(* ---- At first. Pinned VMIDs are given before any VM runs. ---- *)

MachineInit ==
    /\ \E f \in [Pinned -> Vmids] :
        /\ \A v, w \in Pinned : f[v] = f[w] => v = w
        /\ cell = [v \in Vms |-> IF v \in Pinned THEN <<1, f[v]>> ELSE Zero]
    /\ prev = cell /\ behind = {}
    /\ active = [c \in Cpus |-> Zero] /\ reserved = [c \in Cpus |-> Zero]
    /\ lock = None /\ todo = {}
    /\ pc = [c \in Cpus |-> "idle"] /\ vm = [c \in Cpus |-> None] /\ rid = [c \in Cpus |-> Zero]
    /\ vttbr = [c \in Cpus |-> Parked] /\ cached = [c \in Cpus |-> {}]
    /\ life = [v \in Vms |-> "alive"] /\ edit = NoEdit

(* ---- Invariants that are the same for both, numbered as in docs/model/README.md. ---- *)

InGuest(c) == pc[c] \in {"guest", "edit"}

UniqueVmidPerCpu ==                                                                                         \* 1
    \A c \in Cpus : \A e, f \in Tlb(c) : e[2] = f[2] => e[1] = f[1]

OneVmidPerVm ==                                                                                             \* 2
    \A c, d \in Cpus : pc[c] = "guest" /\ pc[d] = "guest" => (vm[c] = vm[d] <=> vttbr[c][2] = vttbr[d][2])

UnmapIsComplete ==                                                                                          \* 3
    edit.state = "done" =>
        \A c \in Cpus : pc[c] = "guest" /\ vm[c] = edit.vm => <<edit.vm, vttbr[c][2], TRUE>> \notin Tlb(c)

\* The id under which a CPU may be running a guest.
Runs(c) == IF active[c] = Zero THEN reserved[c] ELSE active[c]

VttbrIsActive ==                                                                                            \* 8
    \A c \in Cpus :
        /\ pc[c] = "guest" => Vmid(Runs(c)) = vttbr[c][2]
        /\ Parking = "first" /\ ~InGuest(c) => vttbr[c] = Parked

PinnedIdsDontChange ==                                                                                      \* 10
    [][\A v \in Pinned : Vmid(cell'[v]) = Vmid(cell[v])]_cell

PinnedIsNobodyElses ==                                                                                      \* 10
    \A v \in Pinned, w \in Vms : v # w => Vmid(cell[v]) # Vmid(cell[w])

Symmetry == Permutations(Vms \ Pinned) \cup Permutations(Pinned) \cup Permutations(Vmids)
=============================================================================
