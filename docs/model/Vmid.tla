-------------------------------- MODULE Vmid --------------------------------
(* Odometer's VMID allocator (hypervisor/src/vmid), what the world switch does around it
   (hypervisor/src/scheduler/binding.rs), and the TLBs that both are there for.

   Every access to memory that CPUs share is a step of its own, and so is every write of VTTBR_EL2 and
   every CPU's part of a broadcast invalidation. docs/model/README.md is the way in. *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Cpus,            \* numbers 0..n-1
    Vms,             \* model values, a symmetry set
    Vmids,           \* model values, a symmetry set: the VMIDs that may be given to VMs, 0 is not among them
    None,            \* a model value: no VM, VMID 0
    Crowd,           \* whether there may be more VMs than are followed here, which take any VMIDs that are free
    VcpusPerVm,      \* CPUs that may run one VM at once
    Pinned,          \* the VMs whose VMID is theirs for good: a subset of Vms
    Policy,          \* "v3-no-clear", "v3-clear-zero", "merged", "clear", "tri-state", "global"
    Flush,           \* a rollover flushes: "broadcast"; "local": each CPU for itself, before it enters a guest
    LastGeneration,  \* none is begun after this one ...
    AtLast,          \* ... "stop", or "wrap" (1 comes next)
    LateGeneration,  \* "no"; "until-dsb", "until-lock": when others see a new generation at the latest
    LateIds,         \* whether others may see a VM's new id late: until the DSB that follows it, or the lock
    Publishes,       \* whether a DSB stands between a new id's store and the first walk under it
    WalksAtEl2,      \* whether a CPU walks for the VTTBR_EL2 that it holds while it executes at EL2, too
    Parking,         \* schedule-out parks VTTBR_EL2 "first" (and synchronizes), "late" (no ISB), or "never"
    Walks,           \* "eager": as soon and as often as they can (see Tlb); "steps": as steps of their own; "none"
    Edits,           \* changes of a VM's tables that are tried: a subset of {"host", "guest"}, once in a behaviour
    Ends,            \* whether VMs end, and new ones begin in their place
    Fault            \* "none", or what is done wrong (see README.md)

VARIABLES
    gen,       \* the generation
    seen,      \* for each CPU: the newest generation that it has seen (0: not followed)
    cell,      \* for each VM: its id
    prev,      \* for each VM: its id before that
    behind,    \* pairs of a CPU and a VM: the CPU may still read the VM's previous id
    active,    \* for each CPU: its active slot
    reserved,  \* for each CPU: its reserved id
    used,      \* the VMIDs whose bit is set
    pending,   \* CPUs that have to flush their own TLB before they enter a guest
    lock,      \* the CPU that holds the lock, or None
    todo,      \* CPUs that the lock's holder has yet to go to
    pc,        \* for each CPU: what it does next
    vm,        \* for each CPU: the VM that this is about, or None
    rid,       \* for each CPU: the id in its register
    ract,      \* for each CPU: what it has read of its active slot
    vttbr,     \* for each CPU: whose tables, and the VMID, or Parked
    cached,    \* for each CPU: the entries of its TLB
    life,      \* for each VM: "alive", "ending", "ended"
    matched,   \* for each CPU: the generation of the id that it entered a guest under last
    edit       \* the change of tables that is under way, or done

vars == <<gen, seen, cell, prev, behind, active, reserved, used, pending, lock, todo, pc, vm, rid, ract, vttbr,
          cached, life, matched, edit>>
memory == <<gen, seen, cell, prev, behind, active, reserved, used, pending>>    \* what CPUs share

(* ---- Ids: a generation and a VMID. Those without a VMID mean other things (vmid/id.rs). ---- *)

Gen(id) == id[1]
Vmid(id) == id[2]
Zero == <<0, None>>      \* in a cell: never had one. In a slot: a rollover has been here
Invalid == <<1, None>>   \* in a slot: the CPU runs no VM, and has missed no rollover
Away == <<2, None>>      \* in a slot: a rollover has been here, and then the CPU has left its guest (tri-state)
IsLive(id) == Vmid(id) # None

Min(S) == CHOOSE x \in S : \A y \in S : x <= y

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

Fill(c) ==
    /\ Walks = "steps"
    /\ cached' = [cached EXCEPT ![c] = @ \cup Walk(c)]
    /\ UNCHANGED <<memory, lock, todo, pc, vm, rid, ract, vttbr, life, matched, edit>>

DropVmid(c, x) == [cached EXCEPT ![c] = {e \in @ : e[2] # x}]
DropAll(c) == [cached EXCEPT ![c] = {}]

(* ---- What a relaxed load may return. ---- *)

ReadableIds(c, v) == {cell[v]} \cup (IF <<c, v>> \in behind THEN {prev[v]} ELSE {})
SeenBy(c) == IF LateGeneration = "no" THEN gen ELSE seen[c]

\* The new generation arrives at a CPU, sooner or later.
GenerationArrives(c) ==
    /\ LateGeneration # "no" /\ seen[c] # gen
    /\ seen' = [seen EXCEPT ![c] = gen]
    /\ UNCHANGED <<gen, cell, prev, behind, active, reserved, used, pending, lock, todo, pc, vm, rid, ract, vttbr,
                   cached, life, matched, edit>>

\* A store of a VM's id, which others may go on missing.
SetId(c, v, id) ==
    /\ cell' = [cell EXCEPT ![v] = id]
    /\ IF LateIds THEN /\ prev' = [prev EXCEPT ![v] = cell[v]]
                       /\ behind' = {b \in behind : b[2] # v} \cup {<<d, v>> : d \in Cpus \ {c}}
                  ELSE UNCHANGED <<prev, behind>>

\* A DSB of the inner shareable domain: what this CPU stored is seen by all loads from here on. Only the lock's
\* holder stores ids and generations.
Publish ==
    /\ seen' = IF LateGeneration = "until-dsb" THEN [c \in Cpus |-> gen] ELSE seen
    /\ behind' = {}

Goto(c, label) == pc' = [pc EXCEPT ![c] = label]

\* What a pinned VM has is never free (Pool::pin_next, Pool::clear).
OfPinned == {Vmid(cell[v]) : v \in Pinned}

(* ---- Schedule in: the fast path (Allocator::schedule_in). ---- *)

Running(v) == {c \in Cpus : vm[c] = v}

Pick(c) ==
    /\ pc[c] = "idle"
    /\ \E v \in Vms :
        /\ life[v] = "alive" /\ Cardinality(Running(v)) < VcpusPerVm
        /\ vm' = [vm EXCEPT ![c] = v]
    /\ Goto(c, "read_id")
    /\ UNCHANGED <<memory, lock, todo, rid, ract, vttbr, cached, life, matched, edit>>

ReadId(c) ==
    /\ pc[c] = "read_id"
    /\ \E id \in ReadableIds(c, vm[c]) :
        /\ rid' = [rid EXCEPT ![c] = id]
        /\ behind' = IF id = cell[vm[c]] THEN behind \ {<<c, vm[c]>>} ELSE behind
    /\ Goto(c, "read_generation")
    /\ UNCHANGED <<gen, seen, cell, prev, active, reserved, used, pending, lock, todo, vm, ract, vttbr, cached, life,
                   matched, edit>>

Slowly(c) == Goto(c, "lock") /\ rid' = [rid EXCEPT ![c] = Zero] /\ ract' = [ract EXCEPT ![c] = Zero]

ReadGeneration(c) ==
    /\ pc[c] = "read_generation"
    /\ IF IsLive(rid[c]) /\ Gen(rid[c]) = SeenBy(c)
       THEN Goto(c, "read_active") /\ UNCHANGED <<rid, ract>>
       ELSE Slowly(c)
    /\ UNCHANGED <<memory, lock, todo, vm, vttbr, cached, life, matched, edit>>

ReadActive(c) ==
    /\ pc[c] = "read_active"
    /\ IF active[c] \in {Zero, Away}
       THEN Slowly(c)
       ELSE Goto(c, "exchange") /\ ract' = [ract EXCEPT ![c] = active[c]] /\ UNCHANGED rid
    /\ UNCHANGED <<memory, lock, todo, vm, vttbr, cached, life, matched, edit>>

Exchange(c) ==
    /\ pc[c] = "exchange"
    /\ LET wins == active[c] = ract[c]
           writes == wins \/ Fault = "exchange-at-schedule-in"
       IN /\ active' = IF writes THEN [active EXCEPT ![c] = rid[c]] ELSE active
          /\ IF wins THEN Goto(c, "bind") /\ ract' = [ract EXCEPT ![c] = Zero] /\ UNCHANGED rid
                     ELSE Slowly(c)
    /\ UNCHANGED <<gen, seen, cell, prev, behind, reserved, used, pending, lock, todo, vm, vttbr, cached, life, matched,
                   edit>>

(* ---- Schedule in: the slow path (schedule_in_slowly, Renewal). ---- *)

Lock(c) ==
    /\ pc[c] = "lock" /\ lock = None
    /\ lock' = c
    \* Whoever held it before: all of that is seen now.
    /\ seen' = IF LateGeneration = "no" THEN seen ELSE [seen EXCEPT ![c] = gen]
    /\ behind' = {b \in behind : b[1] # c}
    /\ Goto(c, "renew")
    /\ UNCHANGED <<gen, cell, prev, active, reserved, used, pending, todo, vm, rid, ract, vttbr, cached, life, matched,
                   edit>>

\* With the VM's id renewed, if it has to be: a step of the lock's holder alone.
Renew(c) ==
    /\ pc[c] = "renew"
    /\ LET old == cell[vm[c]]
           new == <<gen, Vmid(old)>>
           holders == {d \in Cpus : reserved[d] = old}
           pinned == vm[c] \in Pinned /\ Fault # "renews-pinned"
       IN
       IF IsLive(old) /\ Gen(old) = gen THEN
           /\ rid' = [rid EXCEPT ![c] = old]
           /\ Goto(c, "store_active")
           /\ UNCHANGED <<reserved, used>>
       ELSE IF IsLive(old) /\ (holders # {} \/ pinned) THEN
           /\ reserved' = [d \in Cpus |->
                IF d \in holders /\ (Fault # "one-reserved-slot" \/ d = Min(holders)) THEN new ELSE reserved[d]]
           /\ rid' = [rid EXCEPT ![c] = new]
           /\ Goto(c, "store_id")
           /\ UNCHANGED used
       ELSE
           \* Its old VMID if that is free, else any: the cursor's choice is one of these.
           \/ \E x \in (IF Vmid(old) \in Vmids \ used /\ ~Crowd THEN {Vmid(old)} ELSE Vmids \ used) :
                /\ used' = used \cup {x}
                /\ rid' = [rid EXCEPT ![c] = <<gen, x>>]
                /\ Goto(c, "store_id")
                /\ UNCHANGED reserved
           \/ /\ Crowd \/ Vmids \subseteq used
              /\ Goto(c, "roll_generation")
              /\ UNCHANGED <<reserved, used, rid>>
    /\ UNCHANGED <<gen, seen, cell, prev, behind, active, pending, lock, todo, vm, ract, vttbr, cached, life, matched,
                   edit>>

\* After a rollover. What was reserved by it belongs to a VM whose id was current, so not to this one. More VMs may come and
\* more rollovers go before this one.
Take(c) ==
    /\ pc[c] = "take"
    /\ \/ /\ \E x \in Vmids \ used :
            /\ used' = used \cup {x}
            /\ rid' = [rid EXCEPT ![c] = <<gen, x>>]
          /\ Goto(c, "store_id")
       \/ /\ Crowd
          /\ Goto(c, "roll_generation")
          /\ UNCHANGED <<used, rid>>
    /\ UNCHANGED <<gen, seen, cell, prev, behind, active, reserved, pending, lock, todo, vm, ract, vttbr, cached, life,
                   matched, edit>>

RollGeneration(c) ==
    /\ pc[c] = "roll_generation"
    /\ IF gen < LastGeneration THEN gen' = gen + 1 ELSE AtLast = "wrap" /\ gen' = 1
    /\ seen' = IF LateGeneration = "no" THEN seen ELSE [seen EXCEPT ![c] = gen']
    /\ used' = IF Fault = "frees-pinned" THEN {} ELSE OfPinned
    /\ todo' = Cpus
    /\ Goto(c, IF Fault = "flush-before-exchange" THEN "roll_flush" ELSE "roll_slots")
    /\ UNCHANGED <<cell, prev, behind, active, reserved, pending, lock, vm, rid, ract, vttbr, cached, life, matched,
                   edit>>

\* After the slots: a broadcast; or a mark for each CPU, which comes to the lock before it enters a guest, as its slot is 0.
RollOn(c) ==
    IF Flush = "local"
    THEN Goto(c, "take") /\ todo' = {} /\ pending' = IF Fault = "marks-itself" THEN pending \cup {c} ELSE Cpus
    ELSE Goto(c, "roll_publish") /\ todo' = Cpus /\ UNCHANGED pending

\* One CPU's active slot becomes 0; what it held is reserved.
RollSlot(c) ==
    /\ pc[c] = "roll_slots"
    /\ LET d == Min(todo)
           kept == IF Fault = "forget-reserved" THEN Zero ELSE reserved[d]
           id == IF active[d] = Zero THEN kept ELSE IF IsLive(active[d]) THEN active[d] ELSE Zero
           last == todo = {d}
       IN /\ active' = [active EXCEPT ![d] = Zero]
          /\ reserved' = [reserved EXCEPT ![d] = id]
          \* `global` gives nobody's VMID another generation: it waits for those that ran.
          /\ used' = IF IsLive(id) /\ Policy # "global" THEN used \cup {Vmid(id)} ELSE used
          /\ IF ~last THEN todo' = todo \ {d} /\ UNCHANGED <<pending, pc>>
             ELSE IF Fault = "flush-before-exchange" THEN todo' = {} /\ Goto(c, "take") /\ UNCHANGED pending
             ELSE IF Policy = "global" THEN todo' = {} /\ Goto(c, "roll_wait") /\ UNCHANGED pending
             ELSE RollOn(c)
    /\ UNCHANGED <<gen, seen, cell, prev, behind, lock, vm, rid, ract, vttbr, cached, life, matched, edit>>

\* `global`: every CPU that was in a guest has been kicked, has parked its VTTBR_EL2 and said so.
RollWait(c) ==
    /\ pc[c] = "roll_wait"
    /\ Fault = "no-wait" \/ \A d \in Cpus : IsLive(reserved[d]) => active[d] # Zero
    /\ reserved' = [d \in Cpus |-> Zero]
    /\ RollOn(c)
    /\ UNCHANGED <<gen, seen, cell, prev, behind, active, used, lock, vm, rid, ract, vttbr, cached, life, matched,
                   edit>>

\* DSB ISHST
RollPublish(c) ==
    /\ pc[c] = "roll_publish"
    /\ Publish
    /\ IF Fault = "no-rollover-flush" THEN Goto(c, "take") /\ todo' = {} ELSE Goto(c, "roll_flush") /\ UNCHANGED todo
    /\ UNCHANGED <<gen, cell, prev, active, reserved, used, pending, lock, vm, rid, ract, vttbr, cached, life, matched,
                   edit>>

\* TLBI ALLE1IS reaches one CPU; when it has reached the last, DSB ISH is done.
RollFlush(c) ==
    /\ pc[c] = "roll_flush"
    /\ \E d \in todo :
        /\ cached' = DropAll(d)
        /\ IF todo # {d} THEN todo' = todo \ {d} /\ UNCHANGED pc
           ELSE IF Fault = "flush-before-exchange" THEN todo' = Cpus /\ Goto(c, "roll_slots")
           ELSE todo' = {} /\ Goto(c, "take")
    /\ UNCHANGED <<memory, lock, vm, rid, ract, vttbr, life, matched, edit>>

StoreNewId(c) ==
    /\ pc[c] = "store_id"
    /\ SetId(c, vm[c], rid[c])
    \* A VM that keeps its VMID can be invalidated under its old id as well: no need to wait then.
    /\ Goto(c, IF Publishes /\ Vmid(rid[c]) # Vmid(cell[vm[c]]) THEN "publish_id" ELSE "store_active")
    /\ UNCHANGED <<gen, seen, active, reserved, used, pending, lock, todo, vm, rid, ract, vttbr, cached, life, matched,
                   edit>>

\* DSB ISHST
PublishId(c) ==
    /\ pc[c] = "publish_id"
    /\ Publish
    /\ Goto(c, "store_active")
    /\ UNCHANGED <<gen, cell, prev, active, reserved, used, pending, lock, todo, vm, rid, ract, vttbr, cached, life,
                   matched, edit>>

StoreActive(c) ==
    /\ pc[c] = "store_active"
    /\ active' = [active EXCEPT ![c] = rid[c]]
    /\ lock' = None
    /\ pending' = pending \ {c}
    /\ Goto(c, IF c \in pending /\ Fault # "no-local-flush" THEN "flush_here" ELSE "bind")
    /\ UNCHANGED <<gen, seen, cell, prev, behind, reserved, used, todo, vm, rid, ract, vttbr, cached, life, matched,
                   edit>>

\* TLBI ALLE1, DSB NSH, without the lock: its slot has the id. A rollover that comes meanwhile leaves a new mark.
FlushHere(c) ==
    /\ pc[c] = "flush_here"
    /\ cached' = DropAll(c)
    /\ Goto(c, "bind")
    /\ UNCHANGED <<memory, lock, todo, vm, rid, ract, vttbr, life, matched, edit>>

(* ---- The world switch (bind and unbind in scheduler/binding.rs). ---- *)

Bind(c) ==
    /\ pc[c] = "bind"
    /\ vttbr' = [vttbr EXCEPT ![c] = <<vm[c], Vmid(rid[c])>>]
    /\ cached' = Keep(c)
    /\ matched' = [matched EXCEPT ![c] = Gen(rid[c])]
    /\ rid' = [rid EXCEPT ![c] = Zero]
    /\ Goto(c, "guest")
    /\ UNCHANGED <<memory, lock, todo, vm, ract, life, edit>>

\* The guest's exit after which another vCPU may come.
Leave(c) ==
    /\ pc[c] = "guest"
    /\ cached' = Keep(c)
    /\ vttbr' = IF Parking = "first" THEN [vttbr EXCEPT ![c] = Parked] ELSE vttbr
    /\ Goto(c, "schedule_out")
    /\ UNCHANGED <<memory, lock, todo, vm, rid, ract, life, matched, edit>>

Idle(c) == Goto(c, "idle") /\ vm' = [vm EXCEPT ![c] = None]

ScheduleOut(c) ==
    /\ pc[c] = "schedule_out"
    /\ \E id \in ReadableIds(c, vm[c]) :
        active' = [active EXCEPT ![c] =
            CASE Policy = "v3-no-clear" -> @
              [] Policy = "v3-clear-zero" -> Zero
              [] Policy = "merged" -> Invalid
              [] Policy = "clear" -> IF @ = id THEN Invalid ELSE @
              [] Policy \in {"tri-state", "global"} -> IF @ = id THEN Invalid ELSE @]
    /\ IF Policy \in {"tri-state", "global"} /\ ~IsLive(active[c]) THEN Goto(c, "say_away") /\ UNCHANGED vm
       ELSE IF Parking = "late" THEN Goto(c, "park") /\ UNCHANGED vm
       ELSE Idle(c)
    /\ UNCHANGED <<gen, seen, cell, prev, behind, reserved, used, pending, lock, todo, rid, ract, vttbr, cached, life,
                   matched, edit>>

\* The exchange failed on a rollover's 0, which this replaces by a value that sends the CPU to the lock just so (tri-state,
\* global).
SayAway(c) ==
    /\ pc[c] = "say_away"
    /\ active' = [active EXCEPT ![c] = Away]
    /\ IF Parking = "late" THEN Goto(c, "park") /\ UNCHANGED vm ELSE Idle(c)
    /\ UNCHANGED <<gen, seen, cell, prev, behind, reserved, used, pending, lock, todo, rid, ract, vttbr, cached, life,
                   matched, edit>>

\* VTTBR_EL2 was written in time, but without an ISB the walker learns of it only now.
ParkLate(c) ==
    /\ pc[c] = "park"
    /\ cached' = Keep(c)
    /\ vttbr' = [vttbr EXCEPT ![c] = Parked]
    /\ Idle(c)
    /\ UNCHANGED <<memory, lock, todo, rid, ract, life, matched, edit>>

(* ---- A change of a VM's tables: an exit's handler unmaps a page of its own VM or of another ("host"), or a guest
        does so in its own tables ("guest"). Once in a behaviour. ---- *)

NoEdit == [state |-> "none", kind |-> "none", vm |-> None, vmid |-> None, todo |-> {}, back |-> Parked]

\* All entries that there are, and those that a walker has in hand, are from the old table.
Outdate(v) ==
    cached' = [c \in Cpus |->
        {<<e[1], e[2], e[3] \/ e[1] = v>> : e \in cached[c] \cup {w \in (IF Eager THEN Walk(c) ELSE {}) : w[1] = v}}]

\* The CPU that is at it.
Edit(c, state) == pc[c] = "edit" /\ edit.state = state

EditBegin(c) ==
    /\ pc[c] = "guest" /\ edit = NoEdit
    /\ \E kind \in Edits, v \in Vms :
        /\ life[v] = "alive" /\ (kind = "guest" => v = vm[c])
        /\ LET early == kind = "host" /\ Fault = "vmid-before-change"
           IN /\ edit' = [NoEdit EXCEPT !.kind = kind, !.vm = v, !.back = vttbr[c],
                            !.state = IF early THEN "change" ELSE "changed",
                            !.vmid = IF early THEN Vmid(cell[v]) ELSE None]
              /\ IF early THEN cached' = Keep(c) ELSE Outdate(v)
    /\ Goto(c, "edit")
    /\ UNCHANGED <<memory, lock, todo, vm, rid, ract, vttbr, life, matched>>

EditChange(c) ==
    /\ Edit(c, "change")
    /\ Outdate(edit.vm)
    /\ edit' = [edit EXCEPT !.state = "known"]
    /\ UNCHANGED <<memory, lock, todo, pc, vm, rid, ract, vttbr, life, matched>>

\* After the DSB: under which VMID the VM's entries are. A guest's own TLBI takes that of the CPU.
EditRead(c) ==
    /\ Edit(c, "changed")
    /\ \E x \in (IF edit.kind = "guest" THEN {vttbr[c][2]} ELSE {Vmid(id) : id \in ReadableIds(c, edit.vm)}) :
        edit' = [edit EXCEPT !.state = "known", !.vmid = x]
    /\ UNCHANGED <<memory, lock, todo, pc, vm, rid, ract, vttbr, cached, life, matched>>

\* A TLBI by VMID takes it from VTTBR_EL2: with an empty root, unless it is there anyway.
EditLoad(c) ==
    /\ Edit(c, "known")
    /\ vttbr' = [vttbr EXCEPT ![c] =
        IF edit.vmid = None \/ @ = <<edit.vm, edit.vmid>> THEN @
        ELSE <<IF Fault = "live-root-for-tlbi" THEN edit.vm ELSE None, edit.vmid>>]
    /\ cached' = Keep(c)
    /\ edit' = [edit EXCEPT !.state = "loaded", !.todo = IF edit.vmid = None THEN {} ELSE Cpus]
    /\ UNCHANGED <<memory, lock, todo, pc, vm, rid, ract, life, matched>>

EditFlush(c) ==
    /\ Edit(c, "loaded")
    /\ \E d \in edit.todo :
        /\ cached' = DropVmid(d, edit.vmid)
        /\ edit' = [edit EXCEPT !.todo = @ \ {d}]
    /\ UNCHANGED <<memory, lock, todo, pc, vm, rid, ract, vttbr, life, matched>>

EditEnd(c) ==
    /\ Edit(c, "loaded") /\ edit.todo = {}
    /\ cached' = Keep(c)
    /\ vttbr' = [vttbr EXCEPT ![c] = edit.back]
    /\ edit' = [NoEdit EXCEPT !.state = "done", !.vm = edit.vm]
    /\ Goto(c, "guest")
    /\ UNCHANGED <<memory, lock, todo, vm, rid, ract, life, matched>>

(* ---- A VM's end (Allocator::release), on a CPU that runs nothing; then a new VM in its place. ---- *)

EndBegin(c) ==
    /\ Ends /\ pc[c] = "idle"
    /\ \E v \in Vms :
        /\ life[v] = "alive" /\ Running(v) = {} /\ cell[v] # Zero
        /\ ~(edit.vm = v /\ edit.state # "done")
        /\ vm' = [vm EXCEPT ![c] = v]
        /\ life' = [life EXCEPT ![v] = "ending"]
    /\ Goto(c, "end_lock")
    /\ UNCHANGED <<memory, lock, todo, rid, ract, vttbr, cached, matched, edit>>

EndLock(c) ==
    /\ pc[c] = "end_lock" /\ lock = None
    /\ seen' = IF LateGeneration = "no" THEN seen ELSE [seen EXCEPT ![c] = gen]
    /\ LET id == cell[vm[c]]
           holds == Gen(id) = gen \/ \E d \in Cpus : reserved[d] = id
           pinned == vm[c] \in Pinned
       IN /\ cell' = [cell EXCEPT ![vm[c]] = IF pinned THEN id ELSE Zero]
          /\ prev' = [prev EXCEPT ![vm[c]] = IF pinned THEN @ ELSE Zero]
          \* Who finds the VM's successor in a queue sees all of this.
          /\ behind' = {b \in behind : b[1] # c /\ b[2] # vm[c]}
          /\ IF pinned
             \* Its VMID and its id stay, for its successor; but not its entries.
             THEN /\ lock' = c /\ todo' = Cpus /\ rid' = [rid EXCEPT ![c] = id]
                  /\ Goto(c, "end_flush")
                  /\ UNCHANGED <<reserved, vm, life>>
             ELSE IF holds
             THEN /\ lock' = c /\ todo' = Cpus /\ rid' = [rid EXCEPT ![c] = id]
                  /\ reserved' = [d \in Cpus |-> IF reserved[d] = id THEN Zero ELSE reserved[d]]
                  /\ Goto(c, "end_slots")
                  /\ UNCHANGED <<vm, life>>
             ELSE /\ life' = [life EXCEPT ![vm[c]] = "ended"]
                  /\ Idle(c)
                  /\ UNCHANGED <<reserved, lock, todo, rid>>
    /\ UNCHANGED <<gen, active, used, pending, ract, vttbr, cached, matched, edit>>

EndSlot(c) ==
    /\ pc[c] = "end_slots"
    /\ LET d == Min(todo)
       IN /\ active' = [active EXCEPT ![d] = IF @ = rid[c] THEN Invalid ELSE @]
          /\ IF todo # {d} THEN todo' = todo \ {d} /\ UNCHANGED pc
             ELSE IF Fault = "no-end-flush" THEN todo' = {} /\ Goto(c, "end_free")
             ELSE todo' = Cpus /\ Goto(c, "end_flush")
    /\ UNCHANGED <<gen, seen, cell, prev, behind, reserved, used, pending, lock, vm, rid, ract, vttbr, cached, life,
                   matched, edit>>

\* TLBI VMALLS12E1IS, under a parked VTTBR_EL2 with the VMID: nothing comes back.
EndFlush(c) ==
    /\ pc[c] = "end_flush"
    /\ \E d \in todo :
        /\ cached' = DropVmid(d, Vmid(rid[c]))
        /\ todo' = todo \ {d}
        /\ IF todo # {d} THEN UNCHANGED pc ELSE Goto(c, "end_free")
    /\ UNCHANGED <<memory, lock, vm, rid, ract, vttbr, life, matched, edit>>

EndFree(c) ==
    /\ pc[c] = "end_free"
    /\ used' = IF vm[c] \in Pinned THEN used ELSE used \ {Vmid(rid[c])}
    /\ lock' = None
    /\ rid' = [rid EXCEPT ![c] = Zero]
    /\ life' = [life EXCEPT ![vm[c]] = "ended"]
    /\ Idle(c)
    /\ UNCHANGED <<gen, seen, cell, prev, behind, active, reserved, pending, todo, ract, vttbr, cached, matched, edit>>

\* What is left of the ended one is nobody's, and must not be met by its successor either.
Begin(v) ==
    /\ life[v] = "ended"
    /\ life' = [life EXCEPT ![v] = "alive"]
    /\ cached' = [c \in Cpus |-> {IF e[1] = v THEN <<None, e[2], e[3]>> ELSE e : e \in cached[c]}]
    /\ UNCHANGED <<memory, lock, todo, pc, vm, rid, ract, vttbr, matched, edit>>

(* ---- All together. ---- *)

Init ==
    /\ gen = 1
    /\ seen = [c \in Cpus |-> IF LateGeneration = "no" THEN 0 ELSE 1]
    \* Pinned VMIDs are given before any VM runs.
    /\ \E f \in [Pinned -> Vmids] :
        /\ \A v, w \in Pinned : f[v] = f[w] => v = w
        /\ cell = [v \in Vms |-> IF v \in Pinned THEN <<1, f[v]>> ELSE Zero]
        /\ used = {f[v] : v \in Pinned}
    /\ prev = cell /\ behind = {}
    /\ active = [c \in Cpus |-> Zero] /\ reserved = [c \in Cpus |-> Zero] /\ pending = {}
    /\ lock = None /\ todo = {}
    /\ pc = [c \in Cpus |-> "idle"] /\ vm = [c \in Cpus |-> None]
    /\ rid = [c \in Cpus |-> Zero] /\ ract = [c \in Cpus |-> Zero]
    /\ vttbr = [c \in Cpus |-> Parked] /\ cached = [c \in Cpus |-> {}]
    /\ life = [v \in Vms |-> "alive"]
    /\ matched = [c \in Cpus |-> 0]
    /\ edit = NoEdit

ScheduleIn(c) ==
    \/ ReadId(c) \/ ReadGeneration(c) \/ ReadActive(c) \/ Exchange(c) \/ Lock(c) \/ Renew(c) \/ Take(c)
    \/ RollGeneration(c) \/ RollSlot(c) \/ RollWait(c) \/ RollPublish(c) \/ RollFlush(c)
    \/ StoreNewId(c) \/ PublishId(c) \/ StoreActive(c) \/ FlushHere(c) \/ Bind(c)

Out(c) == Leave(c) \/ ScheduleOut(c) \/ SayAway(c) \/ ParkLate(c)

Change(c) == EditBegin(c) \/ EditChange(c) \/ EditRead(c) \/ EditLoad(c) \/ EditFlush(c) \/ EditEnd(c)

End(c) == EndBegin(c) \/ EndLock(c) \/ EndSlot(c) \/ EndFlush(c) \/ EndFree(c)

Next ==
    \/ \E c \in Cpus : Pick(c) \/ ScheduleIn(c) \/ Out(c) \/ Change(c) \/ End(c) \/ Fill(c) \/ GenerationArrives(c)
    \/ \E v \in Vms : Begin(v)

Spec == Init /\ [][Next]_vars

(* ---- The invariants, numbered as in docs/vmid.md. ---- *)

InGuest(c) == pc[c] \in {"guest", "edit"}

UniqueVmidPerCpu ==                                                                                         \* 1
    \A c \in Cpus : \A e, f \in Tlb(c) : e[2] = f[2] => e[1] = f[1]

OneVmidPerVm ==                                                                                             \* 2
    \A c, d \in Cpus : pc[c] = "guest" /\ pc[d] = "guest" => (vm[c] = vm[d] <=> vttbr[c][2] = vttbr[d][2])

UnmapIsComplete ==                                                                                          \* 3
    edit.state = "done" =>
        \A c \in Cpus : pc[c] = "guest" /\ vm[c] = edit.vm => <<edit.vm, vttbr[c][2], TRUE>> \notin Tlb(c)

IdsAreMarked ==                                                                                             \* 4
    lock = None =>
        /\ \A v \in Vms : IsLive(cell[v]) /\ Gen(cell[v]) = gen => Vmid(cell[v]) \in used
        /\ \A c \in Cpus : IsLive(reserved[c]) => Vmid(reserved[c]) \in used

NoSharedId ==                                                                                               \* 5
    lock = None => \A v, w \in Vms : v # w /\ IsLive(cell[v]) => cell[v] # cell[w]

RolloverLeavesOne ==                                                                                        \* 6
    \A c \in Cpus : pc[c] \in {"roll_publish", "take"} => Vmids \ used # {}

GenerationsDontGoBack ==                                                                                    \* 7
    [][\A c \in Cpus : matched'[c] >= matched[c]]_vars

VttbrIsActive ==                                                                                            \* 8
    \A c \in Cpus :
        /\ pc[c] = "guest" => Vmid(IF active[c] = Zero THEN reserved[c] ELSE active[c]) = vttbr[c][2]
        /\ Parking = "first" /\ ~InGuest(c) => vttbr[c] = Parked

OnlyTheLockRevives ==                                                                                       \* 9
    [][\A c \in Cpus : active[c] = Zero /\ IsLive(active'[c]) => lock = c]_vars

PinnedIdsDontChange ==                                                                                      \* 10
    [][\A v \in Pinned : Vmid(cell'[v]) = Vmid(cell[v])]_vars

PinnedIsNobodyElses ==                                                                                      \* 10
    \A v \in Pinned, w \in Vms : v # w => Vmid(cell[v]) # Vmid(cell[w])

\* With local flushes, nothing but what a CPU removes before it next enters a guest.
EndedLeavesNothing ==                                                                                       \* 11
    \A v \in Vms : life[v] = "ended" => \A c \in Cpus : \A e \in Tlb(c) :
        e[1] = v => c \in pending \/ pc[c] = "flush_here"

\* A CPU that runs nothing when its slot is exchanged keeps nothing reserved ...
IdleReservesNothing ==                                                                                      \* 12
    [][\A c, d \in Cpus : pc[c] = "roll_slots" /\ lock = c /\ todo # todo' /\ d = Min(todo) /\ pc[d] = "idle"
            => ~IsLive(reserved'[d])]_vars
\* ... which `clear` has for those that ran nothing when the rollover before came, too.
IdleReservesNothingNew ==
    [][\A c, d \in Cpus : pc[c] = "roll_slots" /\ lock = c /\ todo # todo' /\ d = Min(todo) /\ pc[d] = "idle"
            => (IsLive(reserved'[d]) => reserved'[d] = reserved[d])]_vars

(* ---- 13: whoever wants to run gets to run, if steps that can be taken are taken and the lock is fair; until the
        last generation that is looked at begins, and where VMs neither end nor change. ---- *)

FairSpec ==
    /\ Spec
    /\ \A c \in Cpus :
        /\ WF_vars(ScheduleIn(c) \/ Out(c))
        /\ SF_vars(Lock(c))

EveryoneRuns == \A c \in Cpus : pc[c] = "read_id" ~> (pc[c] = "guest" \/ gen = LastGeneration)               \* 13

Symmetry == Permutations(Vms \ Pinned) \cup Permutations(Pinned) \cup Permutations(Vmids)
=============================================================================
