------------------------------- MODULE Reclaim -------------------------------
(* The policy `reclaim` (hypervisor/src/vmid/tenure.rs), in what Machine.tla puts around it: VMIDs are taken one by one from
   VMs that run nowhere. *)
EXTENDS Machine

CONSTANTS
    LastTenure,   \* tenures have the numbers 1 to this
    Flush,        \* "local": each CPU for itself before it enters; "broadcast": right when a VMID is taken away
    LateKnown     \* whether a CPU may see late that its entry of a VMID was made invalid

VARIABLES
    number,    \* of the tenure that began last
    counting,  \* whether VMIDs have been short: before that a CPU needs no admission
    seen,      \* CPUs that have seen that
    owner,     \* for each VMID: the id of its tenure, or Zero
    used,      \* for each VMID: CPUs admitted in this tenure
    stale,     \* for each VMID: CPUs that may have entries of earlier ones
    taken,     \* the VMIDs whose bit is set
    known,     \* for each CPU and VMID: the number of the tenure that it was admitted to, or 0
    unknown,   \* triples of CPU, VMID, number: the CPU may still read this number, which was made invalid
    fresh,     \* of these, what the CPU can't read any more once it has read its slot anew
    touched,   \* CPUs whose idle slot was written since they have read it
    victim,    \* the VMID that is being taken away, or None
    cleared    \* CPUs whose entry of it was made invalid

shortage == <<number, counting, seen>>
accounts == <<owner, used, stale, taken>>
entries == <<known, unknown, fresh>>
revoking == <<victim, cleared>>
own == <<shortage, accounts, entries, touched, revoking>>
vars == <<machine, own>>

ReadableKnown(c, x) == {known[c][x]} \cup {t[3] : t \in {t \in unknown : t[1] = c /\ t[2] = x}}

(* ---- What the machine does, whatever the allocator. ---- *)

Pick(c) == TakesUp(c, "read_slot") /\ UNCHANGED own
Bind(c) == Enters(c) /\ UNCHANGED own
Leave(c) == Leaves(c) /\ UNCHANGED own
EditBegin(c) == ChangeBegins(c) /\ UNCHANGED own
EditChange(c) == ChangeIsMade(c) /\ UNCHANGED own
EditRead(c) == ChangeReadsVmid(c) /\ UNCHANGED own
EditLoad(c) == ChangeLoadsVmid(c) /\ UNCHANGED own
EditFlush(c) == ChangeFlushes(c) /\ UNCHANGED own
EditEnd(c) == ChangeEnds(c) /\ UNCHANGED own
EndBegin(c) == VmEnds(c) /\ UNCHANGED own
Begin(v) == Begins(v) /\ UNCHANGED own

(* ---- Schedule in: the fast paths (enter_by_generation while there is no shortage, enter_by_tenure). ---- *)

\* With acquire: of the entries that were made invalid before the slot was last written none is seen valid.
ReadSlot(c) ==
    /\ pc[c] = "read_slot"
    /\ touched' = touched \ {c}
    /\ unknown' = IF Fault = "relaxed-slot" THEN unknown ELSE unknown \ fresh
    /\ fresh' = {t \in fresh : t[1] # c}
    /\ Goto(c, IF active[c] \in {Zero, Out} THEN "lock" ELSE "read_id")
    /\ UNCHANGED <<shortage, accounts, known, revoking, shared, vm, rid, world>>

ReadId(c) ==
    /\ pc[c] = "read_id"
    /\ \E id \in ReadableIds(c, vm[c]) :
        /\ rid' = [rid EXCEPT ![c] = id]
        /\ behind' = IF id = cell[vm[c]] THEN behind \ {<<c, vm[c]>>} ELSE behind
        /\ Goto(c, IF IsLive(id) THEN "read_known" ELSE "lock")
    /\ UNCHANGED <<own, cell, prev, slots, held, vm, world>>

ReadKnown(c) ==
    /\ pc[c] = "read_known"
    /\ IF counting /\ c \in seen
       THEN \E n \in ReadableKnown(c, Vmid(rid[c])) :
                IF n = Num(rid[c]) THEN Goto(c, "exchange") /\ UNCHANGED rid
                ELSE Goto(c, "lock") /\ rid' = [rid EXCEPT ![c] = Zero]
       ELSE Goto(c, "exchange") /\ UNCHANGED rid
    /\ UNCHANGED <<own, shared, vm, world>>

Exchange(c) ==
    /\ pc[c] = "exchange"
    /\ IF active[c] # Zero /\ c \notin touched
       THEN active' = [active EXCEPT ![c] = rid[c]] /\ Goto(c, "bind") /\ UNCHANGED rid
       ELSE UNCHANGED active /\ Goto(c, "lock") /\ rid' = [rid EXCEPT ![c] = Zero]
    /\ UNCHANGED <<own, ids, reserved, held, vm, world>>

(* ---- Schedule in: the slow path. ---- *)

Synchronize(c) ==
    /\ seen' = IF counting THEN seen \cup {c} ELSE seen
    /\ unknown' = {t \in unknown : t[1] # c}
    /\ fresh' = {t \in fresh : t[1] # c}

Lock(c) ==
    /\ pc[c] = "lock" /\ lock = None
    /\ lock' = c
    /\ Synchronize(c)
    /\ behind' = {b \in behind : b[1] # c}
    /\ Goto(c, "renew")
    /\ UNCHANGED <<number, counting, accounts, known, touched, revoking, cell, prev, slots, todo, vm, rid, world>>

\* Before that: no guest runs here (left_after_rollover).
SayOutFirst(c) ==
    /\ pc[c] = "lock" /\ active[c] = Zero
    /\ active' = [active EXCEPT ![c] = Out]
    /\ UNCHANGED <<own, ids, reserved, held, pc, vm, rid, world>>

\* The VM goes on in its tenure, or begins one. The first shortage may come before VMIDs seem to run out, and VMIDs may be
\* taken away although some are free: there are VMs that aren't followed, and batches.
Renew(c) ==
    /\ pc[c] = "renew"
    /\ LET old == cell[vm[c]]
       IN
       IF vm[c] \in Pinned \/ (IsLive(old) /\ owner[Vmid(old)] = old) THEN
           /\ rid' = [rid EXCEPT ![c] = old]
           /\ Goto(c, "admit")
           /\ UNCHANGED <<number, owner, used, taken, revoking, todo>>
       ELSE
           \/ /\ ~counting
              /\ todo' = Cpus /\ Goto(c, "shortage")
              /\ UNCHANGED <<number, owner, used, taken, revoking, rid>>
           \/ /\ counting
              /\ \E x \in taken : owner[x] # Zero /\ victim' = x
              /\ todo' = used[victim'] /\ cleared' = {}
              /\ Goto(c, IF Fault = "keeps-known" THEN "revoke_slots" ELSE "revoke_known")
              /\ UNCHANGED <<number, owner, used, taken, rid>>
           \/ /\ number < LastTenure
              /\ \E x \in Vmids \ taken :
                  \* Without a shortage ids are of one generation.
                  LET id == <<IF counting THEN number + 1 ELSE number, x>>
                  IN /\ rid' = [rid EXCEPT ![c] = id]
                     /\ owner' = [owner EXCEPT ![x] = id]
                     /\ used' = [used EXCEPT ![x] = {}]
                     /\ taken' = taken \cup {x}
                     /\ number' = Num(id)
              /\ Goto(c, "store_id")
              /\ UNCHANGED <<revoking, todo>>
    /\ UNCHANGED <<counting, seen, stale, entries, touched, ids, slots, lock, vm, world>>

\* A rollover without a flush: each CPU comes to the lock once.
Shortage(c) ==
    /\ pc[c] = "shortage"
    /\ LET d == Min(todo)
       IN /\ reserved' = [reserved EXCEPT ![d] = IF IsLive(active[d]) THEN active[d] ELSE Zero]
          /\ active' = [active EXCEPT ![d] = Zero]
          /\ todo' = todo \ {d}
          /\ IF todo # {d} THEN UNCHANGED <<counting, seen, used, pc>>
             ELSE /\ counting' = TRUE /\ seen' = {c}
                  /\ used' = [x \in Vmids |-> IF owner[x] # Zero THEN Cpus ELSE {}]
                  /\ Goto(c, "renew")
          /\ taken' = IF counting' /\ Fault = "frees-pinned" THEN taken \ OfPinned ELSE taken
    /\ UNCHANGED <<number, owner, stale, entries, touched, revoking, ids, lock, vm, rid, world>>

\* ---- Taking a VMID away (revoke): each CPU's entry, then its slot. Also at a VM's end.

RevokeKnown(c) ==
    /\ pc[c] \in {"revoke_known", "end_known"}
    /\ IF todo = {} THEN
           /\ todo' = used[victim]
           /\ Goto(c, IF pc[c] = "end_known" THEN "end_slots" ELSE "revoke_slots")
           /\ UNCHANGED <<known, unknown, cleared>>
       ELSE
           LET d == Min(todo)
               is == known[d][victim] = Num(owner[victim])
           IN /\ todo' = todo \ {d}
              /\ known' = IF is THEN [known EXCEPT ![d][victim] = 0] ELSE known
              /\ unknown' = IF is /\ LateKnown /\ d # c THEN unknown \cup {<<d, victim, known[d][victim]>>} ELSE unknown
              /\ cleared' = IF is THEN cleared \cup {d} ELSE cleared
              /\ UNCHANGED pc
    /\ UNCHANGED <<shortage, accounts, fresh, touched, victim, ids, slots, lock, vm, rid, world>>

RevokeSlot(c) ==
    /\ pc[c] \in {"revoke_slots", "end_slots"} /\ todo # {}
    /\ LET d == Min(todo)
           busy == Vmid(Runs(d)) = victim
       IN IF busy THEN
              \* Undone: not a victim.
              /\ known' = [e \in Cpus |-> IF e \in cleared THEN [known[e] EXCEPT ![victim] = Num(owner[victim])] ELSE known[e]]
              /\ unknown' = {t \in unknown : t[2] # victim}
              /\ fresh' = {t \in fresh : t[2] # victim}
              /\ todo' = {} /\ victim' = None /\ cleared' = {}
              /\ Goto(c, "renew")
              /\ UNCHANGED touched
          ELSE
              /\ todo' = todo \ {d}
              /\ touched' = IF active[d] \in {Zero, Out} \/ IsLive(active[d]) \/ Fault = "leaves-idle-slots"
                            THEN touched ELSE touched \cup {d}
              /\ fresh' = IF Fault = "leaves-running-slots" /\ IsLive(active[d]) THEN fresh
                          ELSE fresh \cup {t \in unknown : t[1] = d}
              /\ UNCHANGED <<known, unknown, revoking, pc>>
    /\ UNCHANGED <<shortage, accounts, ids, slots, lock, vm, rid, world>>

Revoked(c) ==
    /\ pc[c] \in {"revoke_slots", "end_slots"} /\ todo = {}
    /\ LET left == IF Fault = "forgets-stale" THEN {} ELSE stale[victim] \cup used[victim]
           end == pc[c] = "end_slots"
       IN /\ owner' = [owner EXCEPT ![victim] = Zero]
          /\ used' = [used EXCEPT ![victim] = {}]
          /\ stale' = [stale EXCEPT ![victim] = left]
          /\ IF Flush = "broadcast" \/ end
             THEN todo' = Cpus /\ Goto(c, IF end THEN "end_flush" ELSE "revoke_flush") /\ UNCHANGED <<taken, victim>>
             ELSE /\ todo' = {} /\ victim' = None /\ taken' = taken \ {victim}
                  /\ Goto(c, "renew")
    /\ cleared' = {}
    /\ UNCHANGED <<shortage, entries, touched, ids, slots, lock, vm, rid, world>>

\* A targeted broadcast, under a parked VTTBR_EL2 with the VMID.
RevokeFlush(c) ==
    /\ pc[c] \in {"revoke_flush", "end_flush"}
    /\ \E d \in todo :
        /\ cached' = DropVmid(d, victim)
        /\ todo' = todo \ {d}
        /\ IF todo # {d} THEN UNCHANGED <<stale, taken, victim, lock, pc, vm, life>>
           ELSE /\ victim' = None
                /\ stale' = [stale EXCEPT ![victim] = {}]
                /\ taken' = taken \ ({victim} \ OfPinned)
                /\ IF pc[c] = "end_flush"
                   THEN /\ lock' = None
                        /\ life' = [life EXCEPT ![vm[c]] = "ended"]
                        /\ GoesIdle(c)
                   ELSE Goto(c, "renew") /\ UNCHANGED <<lock, vm, life>>
    /\ UNCHANGED <<shortage, owner, used, entries, touched, cleared, ids, slots, rid, vttbr, edit>>

StoreNewId(c) ==
    /\ pc[c] = "store_id"
    /\ SetId(c, vm[c], rid[c])
    /\ Goto(c, IF Publishes THEN "publish_id" ELSE "admit")
    /\ UNCHANGED <<own, slots, held, vm, rid, world>>

\* DSB ISHST
PublishId(c) ==
    /\ pc[c] = "publish_id"
    /\ behind' = {}
    /\ Goto(c, "admit")
    /\ UNCHANGED <<own, cell, prev, slots, held, vm, rid, world>>

\* This CPU's entry is its own, and the rest the lock's. If something stale is left in its TLB, it is noted as gone already.
\* Of a pinned VMID there is no account.
Admit(c) ==
    /\ pc[c] = "admit"
    /\ LET x == Vmid(rid[c])
       IN IF vm[c] \in Pinned
          THEN /\ known' = IF counting THEN [known EXCEPT ![c][x] = Num(rid[c])] ELSE known
               /\ Goto(c, "store_active") /\ UNCHANGED <<used, stale>>
          ELSE IF counting
          THEN /\ stale' = [stale EXCEPT ![x] = @ \ {c}]
               /\ used' = [used EXCEPT ![x] = @ \cup {c}]
               /\ known' = [known EXCEPT ![c][x] = Num(rid[c])]
               /\ Goto(c, IF c \in stale[x] /\ Fault # "no-local-flush" THEN "store_active_stale" ELSE "store_active")
          ELSE Goto(c, "store_active") /\ UNCHANGED <<used, stale, known>>
    /\ UNCHANGED <<shortage, owner, taken, unknown, fresh, touched, revoking, shared, vm, rid, world>>

StoreActive(c) ==
    /\ pc[c] \in {"store_active", "store_active_stale"}
    /\ active' = [active EXCEPT ![c] = rid[c]]
    /\ touched' = touched \ {c}
    /\ lock' = None
    /\ Goto(c, IF pc[c] = "store_active" THEN "bind" ELSE "flush_here")
    /\ UNCHANGED <<shortage, accounts, entries, revoking, ids, reserved, todo, vm, rid, world>>

\* Without the lock: its slot has the id.
FlushHere(c) ==
    /\ pc[c] = "flush_here"
    /\ cached' = DropVmid(c, Vmid(rid[c]))
    /\ Goto(c, "bind")
    /\ UNCHANGED <<own, shared, vm, rid, vttbr, life, edit>>

(* ---- Schedule out. ---- *)

\* One fetch_and: the index goes, a 0 stays; then that is replaced.
ScheduleOut(c) ==
    /\ pc[c] = "schedule_out"
    /\ active' = [active EXCEPT ![c] = IF @ = Zero THEN Zero ELSE Idle]
    /\ IF active[c] = Zero THEN Goto(c, "say_out") /\ UNCHANGED vm
       ELSE GoesIdle(c)
    /\ UNCHANGED <<own, ids, reserved, held, rid, world>>

SayOut(c) ==
    /\ pc[c] = "say_out"
    /\ active' = [active EXCEPT ![c] = Out]
    /\ GoesIdle(c)
    /\ UNCHANGED <<own, ids, reserved, held, rid, world>>

(* ---- A VM's end (end_tenure). ---- *)

EndLock(c) ==
    /\ pc[c] = "end_lock" /\ lock = None
    /\ Synchronize(c)
    /\ LET id == cell[vm[c]]
       IN /\ TakesId(c)
          /\ IF vm[c] \in Pinned
             THEN /\ lock' = c /\ victim' = Vmid(id) /\ todo' = Cpus /\ cleared' = {}
                  /\ Goto(c, "end_flush")
                  /\ UNCHANGED <<vm, life>>
             ELSE IF IsLive(id) /\ owner[Vmid(id)] = id
             THEN /\ lock' = c /\ victim' = Vmid(id) /\ todo' = used[Vmid(id)] /\ cleared' = {}
                  /\ Goto(c, "end_known")
                  /\ UNCHANGED <<vm, life>>
             ELSE /\ life' = [life EXCEPT ![vm[c]] = "ended"]
                  /\ GoesIdle(c)
                  /\ UNCHANGED <<held, revoking>>
    /\ UNCHANGED <<number, counting, accounts, known, touched, slots, rid, vttbr, cached, edit>>

(* ---- All together. ---- *)

Init ==
    /\ MachineInit
    /\ number = 1 /\ counting = FALSE /\ seen = {}
    \* Pinned VMIDs are no tenures.
    /\ taken = OfPinned
    /\ owner = [x \in Vmids |-> Zero] /\ used = [x \in Vmids |-> {}] /\ stale = [x \in Vmids |-> {}]
    /\ known = [c \in Cpus |-> [x \in Vmids |-> 0]] /\ unknown = {} /\ fresh = {} /\ touched = {}
    /\ victim = None /\ cleared = {}

Next ==
    \/ \E c \in Cpus :
        \/ Pick(c) \/ ReadSlot(c) \/ ReadId(c) \/ ReadKnown(c) \/ Exchange(c) \/ SayOutFirst(c) \/ Lock(c)
        \/ Renew(c) \/ Shortage(c)
        \/ RevokeKnown(c) \/ RevokeSlot(c) \/ Revoked(c) \/ RevokeFlush(c) \/ StoreNewId(c) \/ PublishId(c)
        \/ Admit(c) \/ StoreActive(c) \/ FlushHere(c) \/ Bind(c) \/ Leave(c) \/ ScheduleOut(c) \/ SayOut(c)
        \/ EditBegin(c) \/ EditChange(c) \/ EditRead(c) \/ EditLoad(c) \/ EditFlush(c) \/ EditEnd(c)
        \/ EndBegin(c) \/ EndLock(c)
    \/ \E v \in Vms : Begin(v)

Spec == Init /\ [][Next]_vars

(* ---- The invariants, beside those in Machine.tla. ---- *)

TenuresAreMarked ==                                                                                         \* 4
    lock = None => \A x \in Vmids : owner[x] # Zero => x \in taken

OneOwner ==                                                                                                 \* 5
    lock = None => \A v, w \in Vms : v # w /\ IsLive(cell[v]) /\ owner[Vmid(cell[v])] = cell[v] => cell[v] # cell[w]

OnlyTheLockRevives ==                                                                                       \* 9
    [][\A c \in Cpus : active[c] \in {Zero, Out} /\ IsLive(active'[c]) => lock = c]_vars

EndedLeavesNothing ==                                                                                       \* 11
    \A v \in Vms : life[v] = "ended" => \A c \in Cpus : \A e \in Tlb(c) :
        e[1] = v => \/ c \in stale[e[2]]
                    \/ pc[c] \in {"store_active_stale", "flush_here"} /\ Vmid(rid[c]) = e[2]

\* What runs is never taken away (there is no rollover that would have to reserve it, 12).
RunningKeepsIts ==
    \A c \in Cpus : pc[c] = "guest" =>
        /\ Vmid(cell[vm[c]]) = vttbr[c][2]
        /\ owner[vttbr[c][2]] = IF vm[c] \in Pinned THEN Zero ELSE cell[vm[c]]

=============================================================================
