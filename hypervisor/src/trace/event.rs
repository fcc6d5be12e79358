//! An event: what happened, when, and to whom.

/// What happened. The number is part of the format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A vCPU goes on at EL1 or EL0.
    Enter = 1,
    /// It has come to EL2; `detail` is the `Reason`.
    Exit = 2,
    /// A vCPU was put on the CPU; `value` is its VM's VMID.
    ScheduleIn = 3,
    /// It was taken off.
    ScheduleOut = 4,
    /// The CPU begins to wait for work.
    IdleBegin = 5,
    /// It has something to do again.
    IdleEnd = 6,
    /// For a schedule-in the VMID allocator takes its lock. The end of it is the schedule-in.
    VmidSlow = 7,
    /// All VMIDs were given up: a new generation.
    VmidRollover = 8,
    /// A VMID was taken from a VM that runs nowhere; `value` is the VMID.
    VmidReclaim = 9,
    /// The allocator has TLBs invalidated; `detail` is the [`Flush`], `value` the VMID or how many VMIDs.
    VmidFlush = 10,
    /// Another CPU was asked to look at the vCPU; `value` is that CPU.
    Kick = 11,
    /// An interrupt becomes pending in a list register of the vCPU; `value` is its INTID.
    Inject = 12,
}

impl Kind {
    /// All, in the order of their numbers.
    pub const ALL: [Kind; 12] = [
        Kind::Enter,
        Kind::Exit,
        Kind::ScheduleIn,
        Kind::ScheduleOut,
        Kind::IdleBegin,
        Kind::IdleEnd,
        Kind::VmidSlow,
        Kind::VmidRollover,
        Kind::VmidReclaim,
        Kind::VmidFlush,
        Kind::Kick,
        Kind::Inject,
    ];

    fn of(number: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|&kind| kind as u8 == number)
    }
}

/// What the VMID allocator has invalidated: `detail` of a [`Kind::VmidFlush`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Flush {
    /// All guests' entries, on all CPUs.
    All = 0,
    /// Those of some VMIDs, on all CPUs; `value` is how many VMIDs.
    Vmids = 1,
    /// All guests' entries, on this CPU.
    AllHere = 2,
    /// Those of one VMID, on this CPU; `value` is the VMID.
    VmidHere = 3,
}

impl Flush {
    /// All, in the order of their numbers.
    pub const ALL: [Flush; 4] = [Flush::All, Flush::Vmids, Flush::AllHere, Flush::VmidHere];
}

/// One event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// The system counter, in ticks.
    pub time: u64,
    /// What happened.
    pub kind: Kind,
    /// More about it, as the kind says; else 0.
    pub detail: u8,
    /// The VM that it concerns, by its number; 0 too where it concerns none.
    pub vm: u16,
    /// Which vCPU of it.
    pub vcpu: u16,
    /// A number, as the kind says; else 0.
    pub value: u16,
}

/// Words of an event in memory.
pub(super) const WORDS: usize = 2;

// An event has no padding: its fields fill the two words.
const _: () = assert!(size_of::<Event>() == WORDS * size_of::<u64>());

impl Event {
    /// The event in memory: the time, then kind (bits 7:0), detail (15:8), VM (31:16), vCPU (47:32) and value (63:48).
    #[inline(always)]
    pub const fn words(self) -> [u64; WORDS] {
        let about = self.kind as u64
            | (self.detail as u64) << 8
            | (self.vm as u64) << 16
            | (self.vcpu as u64) << 32
            | (self.value as u64) << 48;
        [self.time, about]
    }

    /// Back again; `None`: no kind has this number.
    pub fn from_words([time, about]: [u64; WORDS]) -> Option<Event> {
        Some(Event {
            time,
            kind: Kind::of(about as u8)?,
            detail: (about >> 8) as u8,
            vm: (about >> 16) as u16,
            vcpu: (about >> 32) as u16,
            value: (about >> 48) as u16,
        })
    }
}
