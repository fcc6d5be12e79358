------------------------------- MODULE Reclaim -------------------------------
(* The policy `reclaim` (hypervisor/src/vmid/tenure.rs): VMIDs are taken one by one from VMs that run nowhere.

   The same surroundings as in Vmid.tla: TLBs that fill as soon and as often as they can, a world switch that parks
   VTTBR_EL2, changes of tables, ends of VMs. docs/model/README.md is the way in. *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Cpus,         \* numbers 0..n-1
    Vms,          \* model values, a symmetry set
    Vmids,        \* model values, a symmetry set
    None,         \* a model value
    Pinned,       \* the VMs whose VMID is theirs for good: a subset of Vms
    VcpusPerVm,   \* CPUs that may run one VM at once
    LastTenure,   \* tenures have the numbers 1 to this
    Flush,        \* "local": each CPU for itself before it enters; "broadcast": right when a VMID is taken away
    LateKnown,    \* whether a CPU may see late that its entry of a VMID was made invalid
    LateIds,      \* whether others may see a VM's new id late
    Publishes,    \* whether a DSB stands between a new id's store and the first walk under it
    WalksAtEl2, Parking, Edits, Ends,    \* as in Vmid.tla
    Fault         \* "none", or what is done wrong (see README.md)

VARIABLES
    number,    \* of the tenure that began last
    counting,  \* whether VMIDs have been short: before that a CPU needs no admission
    seen,      \* CPUs that have seen that
    cell,      \* for each VM: its id
    prev, behind,   \* as in Vmid.tla
    owner,     \* for each VMID: the id of its tenure, or Zero
    used,      \* for each VMID: CPUs admitted in this tenure
    stale,     \* for each VMID: CPUs that may have entries of earlier ones
    taken,     \* the VMIDs whose bit is set
    known,     \* for each CPU and VMID: the number of the tenure that it was admitted to, or 0
    unknown,   \* triples of CPU, VMID, number: the CPU may still read this number, which was made invalid
    fresh,     \* of these, what the CPU can't read any more once it has read its slot anew
    active, reserved,   \* as in Vmid.tla
    touched,   \* CPUs whose idle slot was written since they have read it
    lock, todo,
    victim,    \* the VMID that is being taken away, or None
    cleared,   \* CPUs whose entry of it was made invalid
    pc, vm, rid, vttbr, cached, life, edit   \* as in Vmid.tla

vars == <<number, counting, seen, cell, prev, behind, owner, used, stale, taken, known, unknown, fresh, active, reserved,
          touched, lock, todo, victim, cleared, pc, vm, rid, vttbr, cached, life, edit>>
ids == <<number, counting, seen, cell, prev, behind>>
accounts == <<owner, used, stale, taken>>
entries == <<known, unknown, fresh>>
slots == <<active, reserved, touched>>
holder == <<lock, todo, victim, cleared>>

Num(id) == id[1]
Vmid(id) == id[2]
Zero == <<0, None>>     \* in a slot: the first shortage has been here
Idle == <<1, None>>     \* in a slot: the CPU runs nothing
Out == <<2, None>>      \* in a slot: the first shortage has been here, and then the CPU has left its guest
IsLive(id) == Vmid(id) # None
Min(S) == CHOOSE x \in S : \A y \in S : x <= y
Goto(c, label) == pc' = [pc EXCEPT ![c] = label]
Running(v) == {c \in Cpus : vm[c] = v}
OfPinned == {Vmid(cell[v]) : v \in Pinned}    \* never free, and no tenures

(* ---- TLBs: as in Vmid.tla with eager walks. ---- *)

Parked == <<None, None>>
Walk(c) ==
    IF vttbr[c][1] # None /\ (WalksAtEl2 \/ pc[c] = "guest") THEN {<<vttbr[c][1], vttbr[c][2], FALSE>>} ELSE {}
Tlb(c) == cached[c] \cup Walk(c)
Keep(c) == [cached EXCEPT ![c] = @ \cup Walk(c)]
DropVmid(c, x) == [cached EXCEPT ![c] = {e \in @ : e[2] # x}]

(* ---- Loads that may see late. ---- *)

ReadableIds(c, v) == {cell[v]} \cup (IF <<c, v>> \in behind THEN {prev[v]} ELSE {})
ReadableKnown(c, x) == {known[c][x]} \cup {t[3] : t \in {t \in unknown : t[1] = c /\ t[2] = x}}

(* ---- Schedule in: the fast paths (enter_by_generation while there is no shortage, enter_by_tenure). ---- *)

Pick(c) ==
    /\ pc[c] = "idle"
    /\ \E v \in Vms :
        /\ life[v] = "alive" /\ Cardinality(Running(v)) < VcpusPerVm
        /\ vm' = [vm EXCEPT ![c] = v]
    /\ Goto(c, "read_slot")
    /\ UNCHANGED <<ids, accounts, entries, slots, holder, rid, vttbr, cached, life, edit>>

\* With acquire: of the entries that were made invalid before the slot was last written none is seen valid.
ReadSlot(c) ==
    /\ pc[c] = "read_slot"
    /\ touched' = touched \ {c}
    /\ unknown' = IF Fault = "relaxed-slot" THEN unknown ELSE unknown \ fresh
    /\ fresh' = {t \in fresh : t[1] # c}
    /\ Goto(c, IF active[c] \in {Zero, Out} THEN "lock" ELSE "read_id")
    /\ UNCHANGED <<ids, accounts, known, active, reserved, holder, vm, rid, vttbr, cached, life, edit>>

ReadId(c) ==
    /\ pc[c] = "read_id"
    /\ \E id \in ReadableIds(c, vm[c]) :
        /\ rid' = [rid EXCEPT ![c] = id]
        /\ behind' = IF id = cell[vm[c]] THEN behind \ {<<c, vm[c]>>} ELSE behind
        /\ Goto(c, IF IsLive(id) THEN "read_known" ELSE "lock")
    /\ UNCHANGED <<number, counting, seen, cell, prev, accounts, entries, slots, holder, vm, vttbr, cached, life, edit>>

ReadKnown(c) ==
    /\ pc[c] = "read_known"
    /\ IF counting /\ c \in seen
       THEN \E n \in ReadableKnown(c, Vmid(rid[c])) :
                IF n = Num(rid[c]) THEN Goto(c, "exchange") /\ UNCHANGED rid
                ELSE Goto(c, "lock") /\ rid' = [rid EXCEPT ![c] = Zero]
       ELSE Goto(c, "exchange") /\ UNCHANGED rid
    /\ UNCHANGED <<ids, accounts, entries, slots, holder, vm, vttbr, cached, life, edit>>

Exchange(c) ==
    /\ pc[c] = "exchange"
    /\ IF active[c] # Zero /\ c \notin touched
       THEN active' = [active EXCEPT ![c] = rid[c]] /\ Goto(c, "bind") /\ UNCHANGED rid
       ELSE UNCHANGED active /\ Goto(c, "lock") /\ rid' = [rid EXCEPT ![c] = Zero]
    /\ UNCHANGED <<ids, accounts, entries, reserved, touched, holder, vm, vttbr, cached, life, edit>>

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
    /\ UNCHANGED <<number, counting, cell, prev, accounts, known, slots, todo, victim, cleared, vm, rid, vttbr, cached,
                   life, edit>>

\* Before that: no guest runs here (left_after_rollover).
SayOutFirst(c) ==
    /\ pc[c] = "lock" /\ active[c] = Zero
    /\ active' = [active EXCEPT ![c] = Out]
    /\ UNCHANGED <<ids, accounts, entries, reserved, touched, holder, pc, vm, rid, vttbr, cached, life, edit>>

\* The VM goes on in its tenure, or begins one. The first shortage may come before VMIDs seem to run out, and VMIDs may be
\* taken away although some are free: there are VMs that aren't followed, and batches.
Renew(c) ==
    /\ pc[c] = "renew"
    /\ LET old == cell[vm[c]]
       IN
       IF vm[c] \in Pinned \/ (IsLive(old) /\ owner[Vmid(old)] = old) THEN
           /\ rid' = [rid EXCEPT ![c] = old]
           /\ Goto(c, "admit")
           /\ UNCHANGED <<number, owner, used, taken, victim, todo, cleared>>
       ELSE
           \/ /\ ~counting
              /\ todo' = Cpus /\ Goto(c, "shortage")
              /\ UNCHANGED <<number, owner, used, taken, victim, cleared, rid>>
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
              /\ UNCHANGED <<victim, todo, cleared>>
    /\ UNCHANGED <<counting, seen, cell, prev, behind, stale, entries, slots, lock, vm, vttbr, cached, life, edit>>

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
    /\ UNCHANGED <<number, cell, prev, behind, owner, stale, entries, touched, lock, victim, cleared, vm, rid,
                   vttbr, cached, life, edit>>

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
    /\ UNCHANGED <<ids, accounts, fresh, slots, lock, victim, vm, rid, vttbr, cached, life, edit>>

Runs(d) == IF active[d] = Zero THEN reserved[d] ELSE active[d]

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
              /\ UNCHANGED <<known, unknown, victim, cleared, pc>>
    /\ UNCHANGED <<ids, accounts, active, reserved, lock, vm, rid, vttbr, cached, life, edit>>

Revoked(c) ==
    /\ pc[c] \in {"revoke_slots", "end_slots"} /\ todo = {}
    /\ LET left == IF Fault = "forgets-stale" THEN {} ELSE stale[victim] \cup used[victim]
           end == pc[c] = "end_slots"
       IN /\ owner' = [owner EXCEPT ![victim] = Zero]
          /\ used' = [used EXCEPT ![victim] = {}]
          /\ stale' = [stale EXCEPT ![victim] = left]
          /\ IF Flush = "broadcast" \/ end
             THEN todo' = Cpus /\ Goto(c, IF end THEN "end_flush" ELSE "revoke_flush") /\ UNCHANGED <<victim, taken>>
             ELSE /\ todo' = {} /\ victim' = None /\ taken' = taken \ {victim}
                  /\ Goto(c, "renew")
    /\ cleared' = {}
    /\ UNCHANGED <<ids, entries, slots, lock, vm, rid, vttbr, cached, life, edit>>

\* A targeted broadcast, under a parked VTTBR_EL2 with the VMID.
RevokeFlush(c) ==
    /\ pc[c] \in {"revoke_flush", "end_flush"}
    /\ \E d \in todo :
        /\ cached' = DropVmid(d, victim)
        /\ todo' = todo \ {d}
        /\ IF todo # {d} THEN UNCHANGED <<victim, stale, taken, lock, life, pc, vm>>
           ELSE /\ victim' = None
                /\ stale' = [stale EXCEPT ![victim] = {}]
                /\ taken' = taken \ ({victim} \ OfPinned)
                /\ IF pc[c] = "end_flush"
                   THEN /\ lock' = None
                        /\ life' = [life EXCEPT ![vm[c]] = "ended"]
                        /\ vm' = [vm EXCEPT ![c] = None]
                        /\ Goto(c, "idle")
                   ELSE Goto(c, "renew") /\ UNCHANGED <<lock, life, vm>>
    /\ UNCHANGED <<ids, owner, used, entries, slots, cleared, rid, vttbr, edit>>

StoreNewId(c) ==
    /\ pc[c] = "store_id"
    /\ cell' = [cell EXCEPT ![vm[c]] = rid[c]]
    /\ IF LateIds THEN /\ prev' = [prev EXCEPT ![vm[c]] = cell[vm[c]]]
                       /\ behind' = {b \in behind : b[2] # vm[c]} \cup {<<d, vm[c]>> : d \in Cpus \ {c}}
                  ELSE UNCHANGED <<prev, behind>>
    /\ Goto(c, IF Publishes THEN "publish_id" ELSE "admit")
    /\ UNCHANGED <<number, counting, seen, accounts, entries, slots, holder, vm, rid, vttbr, cached, life, edit>>

\* DSB ISHST
PublishId(c) ==
    /\ pc[c] = "publish_id"
    /\ behind' = {}
    /\ Goto(c, "admit")
    /\ UNCHANGED <<number, counting, seen, cell, prev, accounts, entries, slots, holder, vm, rid, vttbr, cached, life,
                   edit>>

\* This CPU's entry is its own, and the rest the lock's. If something stale is left in its TLB, it is noted as gone already.
\* Of a pinned VMID there is no account.
Admit(c) ==
    /\ pc[c] = "admit"
    /\ LET x == Vmid(rid[c])
       IN IF vm[c] \in Pinned
          THEN /\ known' = IF counting THEN [known EXCEPT ![c][x] = Num(rid[c])] ELSE known
               /\ Goto(c, "store_active") /\ UNCHANGED <<stale, used>>
          ELSE IF counting
          THEN /\ stale' = [stale EXCEPT ![x] = @ \ {c}]
               /\ used' = [used EXCEPT ![x] = @ \cup {c}]
               /\ known' = [known EXCEPT ![c][x] = Num(rid[c])]
               /\ Goto(c, IF c \in stale[x] /\ Fault # "no-local-flush" THEN "store_active_stale" ELSE "store_active")
          ELSE Goto(c, "store_active") /\ UNCHANGED <<stale, used, known>>
    /\ UNCHANGED <<ids, owner, taken, unknown, fresh, slots, holder, vm, rid, vttbr, cached, life, edit>>

StoreActive(c) ==
    /\ pc[c] \in {"store_active", "store_active_stale"}
    /\ active' = [active EXCEPT ![c] = rid[c]]
    /\ touched' = touched \ {c}
    /\ lock' = None
    /\ Goto(c, IF pc[c] = "store_active" THEN "bind" ELSE "flush_here")
    /\ UNCHANGED <<ids, accounts, entries, reserved, todo, victim, cleared, vm, rid, vttbr, cached, life, edit>>

\* Without the lock: its slot has the id.
FlushHere(c) ==
    /\ pc[c] = "flush_here"
    /\ cached' = DropVmid(c, Vmid(rid[c]))
    /\ Goto(c, "bind")
    /\ UNCHANGED <<ids, accounts, entries, slots, holder, vm, rid, vttbr, life, edit>>

(* ---- The world switch. ---- *)

Bind(c) ==
    /\ pc[c] = "bind"
    /\ vttbr' = [vttbr EXCEPT ![c] = <<vm[c], Vmid(rid[c])>>]
    /\ cached' = Keep(c)
    /\ rid' = [rid EXCEPT ![c] = Zero]
    /\ Goto(c, "guest")
    /\ UNCHANGED <<ids, accounts, entries, slots, holder, vm, life, edit>>

Leave(c) ==
    /\ pc[c] = "guest"
    /\ cached' = Keep(c)
    /\ vttbr' = IF Parking = "first" THEN [vttbr EXCEPT ![c] = Parked] ELSE vttbr
    /\ Goto(c, "schedule_out")
    /\ UNCHANGED <<ids, accounts, entries, slots, holder, vm, rid, life, edit>>

\* One fetch_and: the index goes, a 0 stays; then that is replaced.
ScheduleOut(c) ==
    /\ pc[c] = "schedule_out"
    /\ active' = [active EXCEPT ![c] = IF @ = Zero THEN Zero ELSE Idle]
    /\ IF active[c] = Zero THEN Goto(c, "say_out") /\ UNCHANGED vm
       ELSE Goto(c, "idle") /\ vm' = [vm EXCEPT ![c] = None]
    /\ UNCHANGED <<ids, accounts, entries, reserved, touched, holder, rid, vttbr, cached, life, edit>>

SayOut(c) ==
    /\ pc[c] = "say_out"
    /\ active' = [active EXCEPT ![c] = Out]
    /\ Goto(c, "idle") /\ vm' = [vm EXCEPT ![c] = None]
    /\ UNCHANGED <<ids, accounts, entries, reserved, touched, holder, rid, vttbr, cached, life, edit>>

(* ---- A change of a VM's tables: as in Vmid.tla. ---- *)

NoEdit == [state |-> "none", kind |-> "none", vm |-> None, vmid |-> None, todo |-> {}, back |-> Parked]
Edit(c, state) == pc[c] = "edit" /\ edit.state = state

EditBegin(c) ==
    /\ pc[c] = "guest" /\ edit = NoEdit
    /\ \E kind \in Edits, v \in Vms :
        /\ life[v] = "alive" /\ (kind = "guest" => v = vm[c])
        /\ edit' = [NoEdit EXCEPT !.kind = kind, !.vm = v, !.back = vttbr[c], !.state = "changed"]
        /\ cached' = [d \in Cpus |->
            {<<e[1], e[2], e[3] \/ e[1] = v>> : e \in cached[d] \cup {w \in Walk(d) : w[1] = v}}]
    /\ Goto(c, "edit")
    /\ UNCHANGED <<ids, accounts, entries, slots, holder, vm, rid, vttbr, life>>

EditRead(c) ==
    /\ Edit(c, "changed")
    /\ \E x \in (IF edit.kind = "guest" THEN {vttbr[c][2]} ELSE {Vmid(id) : id \in ReadableIds(c, edit.vm)}) :
        edit' = [edit EXCEPT !.state = "known", !.vmid = x]
    /\ UNCHANGED <<ids, accounts, entries, slots, holder, pc, vm, rid, vttbr, cached, life>>

EditLoad(c) ==
    /\ Edit(c, "known")
    /\ vttbr' = [vttbr EXCEPT ![c] =
        IF edit.vmid = None \/ @ = <<edit.vm, edit.vmid>> THEN @ ELSE <<None, edit.vmid>>]
    /\ cached' = Keep(c)
    /\ edit' = [edit EXCEPT !.state = "loaded", !.todo = IF edit.vmid = None THEN {} ELSE Cpus]
    /\ UNCHANGED <<ids, accounts, entries, slots, holder, pc, vm, rid, life>>

EditFlush(c) ==
    /\ Edit(c, "loaded")
    /\ \E d \in edit.todo :
        /\ cached' = DropVmid(d, edit.vmid)
        /\ edit' = [edit EXCEPT !.todo = @ \ {d}]
    /\ UNCHANGED <<ids, accounts, entries, slots, holder, pc, vm, rid, vttbr, life>>

EditEnd(c) ==
    /\ Edit(c, "loaded") /\ edit.todo = {}
    /\ cached' = Keep(c)
    /\ vttbr' = [vttbr EXCEPT ![c] = edit.back]
    /\ edit' = [NoEdit EXCEPT !.state = "done", !.vm = edit.vm]
    /\ Goto(c, "guest")
    /\ UNCHANGED <<ids, accounts, entries, slots, holder, vm, rid, life>>

(* ---- A VM's end, on a CPU that runs nothing. ---- *)

EndBegin(c) ==
    /\ Ends /\ pc[c] = "idle"
    /\ \E v \in Vms :
        /\ life[v] = "alive" /\ Running(v) = {} /\ cell[v] # Zero
        /\ ~(edit.vm = v /\ edit.state # "done")
        /\ vm' = [vm EXCEPT ![c] = v]
        /\ life' = [life EXCEPT ![v] = "ending"]
    /\ Goto(c, "end_lock")
    /\ UNCHANGED <<ids, accounts, entries, slots, holder, rid, vttbr, cached, edit>>

EndLock(c) ==
    /\ pc[c] = "end_lock" /\ lock = None
    /\ Synchronize(c)
    /\ LET id == cell[vm[c]]
           pinned == vm[c] \in Pinned
       IN /\ cell' = [cell EXCEPT ![vm[c]] = IF pinned THEN id ELSE Zero]
          /\ prev' = [prev EXCEPT ![vm[c]] = IF pinned THEN @ ELSE Zero]
          /\ behind' = {b \in behind : b[1] # c /\ b[2] # vm[c]}
          /\ IF pinned
             THEN /\ lock' = c /\ victim' = Vmid(id) /\ todo' = Cpus /\ cleared' = {}
                  /\ Goto(c, "end_flush")
                  /\ UNCHANGED <<vm, life>>
             ELSE IF IsLive(id) /\ owner[Vmid(id)] = id
             THEN /\ lock' = c /\ victim' = Vmid(id) /\ todo' = used[Vmid(id)] /\ cleared' = {}
                  /\ Goto(c, "end_known")
                  /\ UNCHANGED <<vm, life>>
             ELSE /\ life' = [life EXCEPT ![vm[c]] = "ended"]
                  /\ Goto(c, "idle") /\ vm' = [vm EXCEPT ![c] = None]
                  /\ UNCHANGED holder
    /\ UNCHANGED <<number, counting, accounts, known, slots, rid, vttbr, cached, edit>>

\* What is left of the ended one is nobody's, and must not be met by its successor either.
Begin(v) ==
    /\ life[v] = "ended"
    /\ life' = [life EXCEPT ![v] = "alive"]
    /\ cached' = [c \in Cpus |-> {IF e[1] = v THEN <<None, e[2], e[3]>> ELSE e : e \in cached[c]}]
    /\ UNCHANGED <<ids, accounts, entries, slots, holder, pc, vm, rid, vttbr, edit>>

(* ---- All together. ---- *)

Init ==
    /\ number = 1 /\ counting = FALSE /\ seen = {}
    \* Pinned VMIDs are given before any VM runs, and are no tenures.
    /\ \E f \in [Pinned -> Vmids] :
        /\ \A v, w \in Pinned : f[v] = f[w] => v = w
        /\ cell = [v \in Vms |-> IF v \in Pinned THEN <<1, f[v]>> ELSE Zero]
        /\ taken = {f[v] : v \in Pinned}
    /\ prev = cell /\ behind = {}
    /\ owner = [x \in Vmids |-> Zero] /\ used = [x \in Vmids |-> {}] /\ stale = [x \in Vmids |-> {}]
    /\ known = [c \in Cpus |-> [x \in Vmids |-> 0]] /\ unknown = {} /\ fresh = {}
    /\ active = [c \in Cpus |-> Zero] /\ reserved = [c \in Cpus |-> Zero] /\ touched = {}
    /\ lock = None /\ todo = {} /\ victim = None /\ cleared = {}
    /\ pc = [c \in Cpus |-> "idle"] /\ vm = [c \in Cpus |-> None] /\ rid = [c \in Cpus |-> Zero]
    /\ vttbr = [c \in Cpus |-> Parked] /\ cached = [c \in Cpus |-> {}]
    /\ life = [v \in Vms |-> "alive"] /\ edit = NoEdit

Next ==
    \/ \E c \in Cpus :
        \/ Pick(c) \/ ReadSlot(c) \/ ReadId(c) \/ ReadKnown(c) \/ Exchange(c) \/ SayOutFirst(c) \/ Lock(c)
        \/ Renew(c) \/ Shortage(c)
        \/ RevokeKnown(c) \/ RevokeSlot(c) \/ Revoked(c) \/ RevokeFlush(c) \/ StoreNewId(c) \/ PublishId(c)
        \/ Admit(c) \/ StoreActive(c) \/ FlushHere(c) \/ Bind(c) \/ Leave(c) \/ ScheduleOut(c) \/ SayOut(c)
        \/ EditBegin(c) \/ EditRead(c) \/ EditLoad(c) \/ EditFlush(c) \/ EditEnd(c) \/ EndBegin(c) \/ EndLock(c)
    \/ \E v \in Vms : Begin(v)

Spec == Init /\ [][Next]_vars

(* ---- The invariants, numbered as in docs/vmid.md. There are no generations. ---- *)

InGuest(c) == pc[c] \in {"guest", "edit"}

UniqueVmidPerCpu ==                                                                                         \* 1
    \A c \in Cpus : \A e, f \in Tlb(c) : e[2] = f[2] => e[1] = f[1]

OneVmidPerVm ==                                                                                             \* 2
    \A c, d \in Cpus : pc[c] = "guest" /\ pc[d] = "guest" => (vm[c] = vm[d] <=> vttbr[c][2] = vttbr[d][2])

UnmapIsComplete ==                                                                                          \* 3
    edit.state = "done" =>
        \A c \in Cpus : pc[c] = "guest" /\ vm[c] = edit.vm => <<edit.vm, vttbr[c][2], TRUE>> \notin Tlb(c)

TenuresAreMarked ==                                                                                         \* 4
    lock = None => \A x \in Vmids : owner[x] # Zero => x \in taken

OneOwner ==                                                                                                 \* 5
    lock = None => \A v, w \in Vms : v # w /\ IsLive(cell[v]) /\ owner[Vmid(cell[v])] = cell[v] => cell[v] # cell[w]

VttbrIsActive ==                                                                                            \* 8
    \A c \in Cpus :
        /\ pc[c] = "guest" => Vmid(Runs(c)) = vttbr[c][2]
        /\ Parking = "first" /\ ~InGuest(c) => vttbr[c] = Parked

OnlyTheLockRevives ==                                                                                       \* 9
    [][\A c \in Cpus : active[c] \in {Zero, Out} /\ IsLive(active'[c]) => lock = c]_vars

PinnedIdsDontChange ==                                                                                      \* 10
    [][\A v \in Pinned : Vmid(cell'[v]) = Vmid(cell[v])]_vars

PinnedIsNobodyElses ==                                                                                      \* 10
    \A v \in Pinned, w \in Vms : v # w => Vmid(cell[v]) # Vmid(cell[w])

EndedLeavesNothing ==                                                                                       \* 11
    \A v \in Vms : life[v] = "ended" => \A c \in Cpus : \A e \in Tlb(c) :
        e[1] = v => \/ c \in stale[e[2]]
                    \/ pc[c] \in {"store_active_stale", "flush_here"} /\ Vmid(rid[c]) = e[2]

\* What runs is never taken away (there is no rollover that would have to reserve it, 12).
RunningKeepsIts ==
    \A c \in Cpus : pc[c] = "guest" =>
        /\ Vmid(cell[vm[c]]) = vttbr[c][2]
        /\ owner[vttbr[c][2]] = IF vm[c] \in Pinned THEN Zero ELSE cell[vm[c]]

Symmetry == Permutations(Vms \ Pinned) \cup Permutations(Pinned) \cup Permutations(Vmids)
=============================================================================
