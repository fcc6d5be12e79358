-------------------------------- MODULE Vmid --------------------------------
(* Odometer's VMID allocator (hypervisor/src/vmid), by generations, in what Machine.tla puts around it. *)
EXTENDS Machine

CONSTANTS
    Crowd,           \* whether there may be more VMs than are followed here, which take any VMIDs that are free
    Policy,          \* "v3-no-clear", "v3-clear-zero", "merged", "clear", "tri-state", "global"
    Flush,           \* a rollover flushes: "broadcast"; "local": each CPU for itself, before it enters a guest
    LastGeneration,  \* none is begun after this one ...
    AtLast,          \* ... "stop", or "wrap" (1 comes next)
    LateGeneration   \* "no"; "until-dsb", "until-lock": when others see a new generation at the latest

VARIABLES
    gen,       \* the generation
    seen,      \* for each CPU: the newest generation that it has seen (0: not followed)
    used,      \* the VMIDs whose bit is set
    pending,   \* CPUs that have to flush their own TLB before they enter a guest
    ract,      \* for each CPU: what it has read of its active slot
    matched    \* for each CPU: the generation of the id that it entered a guest under last

generations == <<gen, seen>>
accounts == <<used, pending>>
own == <<generations, accounts, ract, matched>>
vars == <<machine, own>>

Gen(id) == Num(id)

(* ---- What the machine does, whatever the allocator. ---- *)

Pick(c) == TakesUp(c, "read_id") /\ UNCHANGED own
Bind(c) == Enters(c) /\ matched' = [matched EXCEPT ![c] = Gen(rid[c])] /\ UNCHANGED <<generations, accounts, ract>>
Leave(c) == Leaves(c) /\ UNCHANGED own
EditBegin(c) == ChangeBegins(c) /\ UNCHANGED own
EditChange(c) == ChangeIsMade(c) /\ UNCHANGED own
EditRead(c) == ChangeReadsVmid(c) /\ UNCHANGED own
EditLoad(c) == ChangeLoadsVmid(c) /\ UNCHANGED own
EditFlush(c) == ChangeFlushes(c) /\ UNCHANGED own
EditEnd(c) == ChangeEnds(c) /\ UNCHANGED own
EndBegin(c) == VmEnds(c) /\ UNCHANGED own
Begin(v) == Begins(v) /\ UNCHANGED own

Fill(c) ==
    /\ Walks = "steps"
    /\ cached' = [cached EXCEPT ![c] = @ \cup Walk(c)]
    /\ UNCHANGED <<own, shared, pc, vm, rid, vttbr, life, edit>>

(* ---- Generations, as they are seen. ---- *)

SeenBy(c) == IF LateGeneration = "no" THEN gen ELSE seen[c]
See(c) == seen' = IF LateGeneration = "no" THEN seen ELSE [seen EXCEPT ![c] = gen']

\* The new generation arrives at a CPU, sooner or later.
GenerationArrives(c) ==
    /\ LateGeneration # "no" /\ seen[c] # gen
    /\ gen' = gen /\ See(c)
    /\ UNCHANGED <<machine, accounts, ract, matched>>

\* A DSB of the inner shareable domain: what this CPU stored is seen by all loads from here on. Only the lock's
\* holder stores ids and generations.
Publish ==
    /\ seen' = IF LateGeneration = "until-dsb" THEN [c \in Cpus |-> gen] ELSE seen
    /\ behind' = {}

(* ---- Schedule in: the fast path (Allocator::schedule_in). ---- *)

ReadId(c) ==
    /\ pc[c] = "read_id"
    /\ \E id \in ReadableIds(c, vm[c]) :
        /\ rid' = [rid EXCEPT ![c] = id]
        /\ behind' = IF id = cell[vm[c]] THEN behind \ {<<c, vm[c]>>} ELSE behind
    /\ Goto(c, "read_generation")
    /\ UNCHANGED <<own, cell, prev, slots, held, vm, world>>

Slowly(c) == Goto(c, "lock") /\ rid' = [rid EXCEPT ![c] = Zero] /\ ract' = [ract EXCEPT ![c] = Zero]

ReadGeneration(c) ==
    /\ pc[c] = "read_generation"
    /\ IF IsLive(rid[c]) /\ Gen(rid[c]) = SeenBy(c)
       THEN Goto(c, "read_active") /\ UNCHANGED <<rid, ract>>
       ELSE Slowly(c)
    /\ UNCHANGED <<generations, accounts, matched, shared, vm, world>>

ReadActive(c) ==
    /\ pc[c] = "read_active"
    /\ IF active[c] \in {Zero, Out}
       THEN Slowly(c)
       ELSE Goto(c, "exchange") /\ ract' = [ract EXCEPT ![c] = active[c]] /\ UNCHANGED rid
    /\ UNCHANGED <<generations, accounts, matched, shared, vm, world>>

Exchange(c) ==
    /\ pc[c] = "exchange"
    /\ LET wins == active[c] = ract[c]
           writes == wins \/ Fault = "exchange-at-schedule-in"
       IN /\ active' = IF writes THEN [active EXCEPT ![c] = rid[c]] ELSE active
          /\ IF wins THEN Goto(c, "bind") /\ ract' = [ract EXCEPT ![c] = Zero] /\ UNCHANGED rid
                     ELSE Slowly(c)
    /\ UNCHANGED <<generations, accounts, matched, ids, reserved, held, vm, world>>

(* ---- Schedule in: the slow path (schedule_in_slowly, Holder). ---- *)

Lock(c) ==
    /\ pc[c] = "lock" /\ lock = None
    /\ lock' = c
    \* Whoever held it before: all of that is seen now.
    /\ gen' = gen /\ See(c)
    /\ behind' = {b \in behind : b[1] # c}
    /\ Goto(c, "renew")
    /\ UNCHANGED <<accounts, ract, matched, cell, prev, slots, todo, vm, rid, world>>

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
           /\ UNCHANGED <<used, reserved>>
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
              /\ UNCHANGED <<used, reserved, rid>>
    /\ UNCHANGED <<generations, pending, ract, matched, ids, active, held, vm, world>>

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
    /\ UNCHANGED <<generations, pending, ract, matched, shared, vm, world>>

RollGeneration(c) ==
    /\ pc[c] = "roll_generation"
    /\ IF gen < LastGeneration THEN gen' = gen + 1 ELSE AtLast = "wrap" /\ gen' = 1
    /\ See(c)
    /\ used' = IF Fault = "frees-pinned" THEN {} ELSE OfPinned
    /\ todo' = Cpus
    /\ Goto(c, IF Fault = "flush-before-exchange" THEN "roll_flush" ELSE "roll_slots")
    /\ UNCHANGED <<pending, ract, matched, ids, slots, lock, vm, rid, world>>

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
    /\ UNCHANGED <<generations, ract, matched, ids, lock, vm, rid, world>>

\* `global`: every CPU that was in a guest has been kicked, has parked its VTTBR_EL2 and said so.
RollWait(c) ==
    /\ pc[c] = "roll_wait"
    /\ Fault = "no-wait" \/ \A d \in Cpus : IsLive(reserved[d]) => active[d] # Zero
    /\ reserved' = [d \in Cpus |-> Zero]
    /\ RollOn(c)
    /\ UNCHANGED <<generations, used, ract, matched, ids, active, lock, vm, rid, world>>

\* DSB ISHST
RollPublish(c) ==
    /\ pc[c] = "roll_publish"
    /\ Publish
    /\ IF Fault = "no-rollover-flush" THEN Goto(c, "take") /\ todo' = {} ELSE Goto(c, "roll_flush") /\ UNCHANGED todo
    /\ UNCHANGED <<gen, accounts, ract, matched, cell, prev, slots, lock, vm, rid, world>>

\* TLBI ALLE1IS reaches one CPU; when it has reached the last, DSB ISH is done.
RollFlush(c) ==
    /\ pc[c] = "roll_flush"
    /\ \E d \in todo :
        /\ cached' = DropAll(d)
        /\ IF todo # {d} THEN todo' = todo \ {d} /\ UNCHANGED pc
           ELSE IF Fault = "flush-before-exchange" THEN todo' = Cpus /\ Goto(c, "roll_slots")
           ELSE todo' = {} /\ Goto(c, "take")
    /\ UNCHANGED <<own, ids, slots, lock, vm, rid, vttbr, life, edit>>

StoreNewId(c) ==
    /\ pc[c] = "store_id"
    /\ SetId(c, vm[c], rid[c])
    \* A VM that keeps its VMID can be invalidated under its old id as well: no need to wait then.
    /\ Goto(c, IF Publishes /\ Vmid(rid[c]) # Vmid(cell[vm[c]]) THEN "publish_id" ELSE "store_active")
    /\ UNCHANGED <<own, slots, held, vm, rid, world>>

\* DSB ISHST
PublishId(c) ==
    /\ pc[c] = "publish_id"
    /\ Publish
    /\ Goto(c, "store_active")
    /\ UNCHANGED <<gen, accounts, ract, matched, cell, prev, slots, held, vm, rid, world>>

StoreActive(c) ==
    /\ pc[c] = "store_active"
    /\ active' = [active EXCEPT ![c] = rid[c]]
    /\ lock' = None
    /\ pending' = pending \ {c}
    /\ Goto(c, IF c \in pending /\ Fault # "no-local-flush" THEN "flush_here" ELSE "bind")
    /\ UNCHANGED <<generations, used, ract, matched, ids, reserved, todo, vm, rid, world>>

\* TLBI ALLE1, DSB NSH, without the lock: its slot has the id. A rollover that comes meanwhile leaves a new mark.
FlushHere(c) ==
    /\ pc[c] = "flush_here"
    /\ cached' = DropAll(c)
    /\ Goto(c, "bind")
    /\ UNCHANGED <<own, shared, vm, rid, vttbr, life, edit>>

(* ---- Schedule out (Allocator::schedule_out, unbind in scheduler/binding.rs). ---- *)

ScheduleOut(c) ==
    /\ pc[c] = "schedule_out"
    /\ \E id \in ReadableIds(c, vm[c]) :
        active' = [active EXCEPT ![c] =
            CASE Policy = "v3-no-clear" -> @
              [] Policy = "v3-clear-zero" -> Zero
              [] Policy = "merged" -> Idle
              [] Policy = "clear" -> IF @ = id THEN Idle ELSE @
              [] Policy \in {"tri-state", "global"} -> IF @ = id THEN Idle ELSE @]
    /\ IF Policy \in {"tri-state", "global"} /\ ~IsLive(active[c]) THEN Goto(c, "say_out") /\ UNCHANGED vm
       ELSE IF Parking = "late" THEN Goto(c, "park") /\ UNCHANGED vm
       ELSE GoesIdle(c)
    /\ UNCHANGED <<own, ids, reserved, held, rid, world>>

\* The exchange failed on a rollover's 0, which this replaces by a value that sends the CPU to the lock just so (tri-state,
\* global).
SayOut(c) ==
    /\ pc[c] = "say_out"
    /\ active' = [active EXCEPT ![c] = Out]
    /\ IF Parking = "late" THEN Goto(c, "park") /\ UNCHANGED vm ELSE GoesIdle(c)
    /\ UNCHANGED <<own, ids, reserved, held, rid, world>>

\* VTTBR_EL2 was written in time, but without an ISB the walker learns of it only now.
ParkLate(c) ==
    /\ pc[c] = "park"
    /\ cached' = Keep(c)
    /\ vttbr' = [vttbr EXCEPT ![c] = Parked]
    /\ GoesIdle(c)
    /\ UNCHANGED <<own, shared, rid, life, edit>>

(* ---- A VM's end (Allocator::release). ---- *)

EndLock(c) ==
    /\ pc[c] = "end_lock" /\ lock = None
    /\ gen' = gen /\ See(c)
    /\ LET id == cell[vm[c]]
           pinned == vm[c] \in Pinned
       IN /\ TakesId(c)
          /\ IF pinned \/ Gen(id) = gen \/ \E d \in Cpus : reserved[d] = id
             THEN /\ lock' = c /\ todo' = Cpus /\ rid' = [rid EXCEPT ![c] = id]
                  \* A pinned VM's id stays where it is, for its successor; but none of its entries.
                  /\ reserved' = [d \in Cpus |-> IF reserved[d] = id /\ ~pinned THEN Zero ELSE reserved[d]]
                  /\ Goto(c, IF pinned THEN "end_flush" ELSE "end_slots")
                  /\ UNCHANGED <<vm, life>>
             ELSE /\ life' = [life EXCEPT ![vm[c]] = "ended"]
                  /\ GoesIdle(c)
                  /\ UNCHANGED <<held, rid, reserved>>
    /\ UNCHANGED <<accounts, ract, matched, active, vttbr, cached, edit>>

EndSlot(c) ==
    /\ pc[c] = "end_slots"
    /\ LET d == Min(todo)
       IN /\ active' = [active EXCEPT ![d] = IF @ = rid[c] THEN Idle ELSE @]
          /\ IF todo # {d} THEN todo' = todo \ {d} /\ UNCHANGED pc
             ELSE IF Fault = "no-end-flush" THEN todo' = {} /\ Goto(c, "end_free")
             ELSE todo' = Cpus /\ Goto(c, "end_flush")
    /\ UNCHANGED <<own, ids, reserved, lock, vm, rid, world>>

\* TLBI VMALLS12E1IS, under a parked VTTBR_EL2 with the VMID: nothing comes back.
EndFlush(c) ==
    /\ pc[c] = "end_flush"
    /\ \E d \in todo :
        /\ cached' = DropVmid(d, Vmid(rid[c]))
        /\ todo' = todo \ {d}
        /\ IF todo # {d} THEN UNCHANGED pc ELSE Goto(c, "end_free")
    /\ UNCHANGED <<own, ids, slots, lock, vm, rid, vttbr, life, edit>>

EndFree(c) ==
    /\ pc[c] = "end_free"
    /\ used' = IF vm[c] \in Pinned THEN used ELSE used \ {Vmid(rid[c])}
    /\ lock' = None
    /\ rid' = [rid EXCEPT ![c] = Zero]
    /\ life' = [life EXCEPT ![vm[c]] = "ended"]
    /\ GoesIdle(c)
    /\ UNCHANGED <<generations, pending, ract, matched, ids, slots, todo, vttbr, cached, edit>>

(* ---- All together. ---- *)

Init ==
    /\ MachineInit
    /\ gen = 1
    /\ seen = [c \in Cpus |-> IF LateGeneration = "no" THEN 0 ELSE 1]
    /\ used = OfPinned /\ pending = {}
    /\ ract = [c \in Cpus |-> Zero] /\ matched = [c \in Cpus |-> 0]

ScheduleIn(c) ==
    \/ ReadId(c) \/ ReadGeneration(c) \/ ReadActive(c) \/ Exchange(c) \/ Lock(c) \/ Renew(c) \/ Take(c)
    \/ RollGeneration(c) \/ RollSlot(c) \/ RollWait(c) \/ RollPublish(c) \/ RollFlush(c)
    \/ StoreNewId(c) \/ PublishId(c) \/ StoreActive(c) \/ FlushHere(c) \/ Bind(c)

OutOf(c) == Leave(c) \/ ScheduleOut(c) \/ SayOut(c) \/ ParkLate(c)

Change(c) == EditBegin(c) \/ EditChange(c) \/ EditRead(c) \/ EditLoad(c) \/ EditFlush(c) \/ EditEnd(c)

End(c) == EndBegin(c) \/ EndLock(c) \/ EndSlot(c) \/ EndFlush(c) \/ EndFree(c)

Next ==
    \/ \E c \in Cpus : Pick(c) \/ ScheduleIn(c) \/ OutOf(c) \/ Change(c) \/ End(c) \/ Fill(c) \/ GenerationArrives(c)
    \/ \E v \in Vms : Begin(v)

Spec == Init /\ [][Next]_vars

(* ---- The invariants, beside those in Machine.tla. ---- *)

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

OnlyTheLockRevives ==                                                                                       \* 9
    [][\A c \in Cpus : active[c] = Zero /\ IsLive(active'[c]) => lock = c]_vars

\* With local flushes, nothing but what a CPU removes before it next enters a guest.
EndedLeavesNothing ==                                                                                       \* 11
    \A v \in Vms : life[v] = "ended" => \A c \in Cpus : \A e \in Tlb(c) :
        e[1] = v => c \in pending \/ pc[c] = "flush_here"

\* A CPU that runs nothing when its slot is exchanged keeps nothing reserved ...
Keeps(c, d) == pc[c] = "roll_slots" /\ lock = c /\ todo # todo' /\ d = Min(todo) /\ pc[d] = "idle" /\ IsLive(reserved'[d])
IdleReservesNothing == [][\A c, d \in Cpus : ~Keeps(c, d)]_vars                                             \* 12
\* ... which `clear` has for those that ran nothing when the rollover before came, too.
IdleReservesNothingNew == [][\A c, d \in Cpus : Keeps(c, d) => reserved'[d] = reserved[d]]_vars

(* ---- 13: whoever wants to run gets to run, if steps that can be taken are taken and the lock is fair; until the
        last generation that is looked at begins, and where VMs neither end nor change. ---- *)

FairSpec ==
    /\ Spec
    /\ \A c \in Cpus :
        /\ WF_vars(ScheduleIn(c) \/ OutOf(c))
        /\ SF_vars(Lock(c))

EveryoneRuns == \A c \in Cpus : pc[c] = "read_id" ~> (pc[c] = "guest" \/ gen = LastGeneration)               \* 13
=============================================================================
