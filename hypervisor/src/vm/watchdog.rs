//! The watchdog's memory of a vCPU: since when it has shown no sign of life.
//!
//! A sign of life is an exit that the guest itself caused, or a timer that is programmed for later. Exits that the hypervisor causes
//! (time slices, kicks, its own devices, the first use of FP/SIMD after each switch) say nothing about the guest: one that spins has them too.
//! Time in which the vCPU was ready and had no CPU doesn't count against it.

use crate::stats::{Counter, ExitStats, Reason};

/// No timer is programmed.
pub const NO_TIMER: u64 = u64::MAX;

/// Exits that happen to a guest whatever it does.
const NOT_ITS_OWN: [Reason; 5] =
    [Reason::IrqSlice, Reason::IrqKick, Reason::IrqDevice, Reason::IrqOther, Reason::Fp];

/// How many exits the guest itself has caused. While one is being counted this may be off by one, for a moment.
pub fn own_exits(exits: &ExitStats) -> u64 {
    NOT_ITS_OWN.iter().fold(exits.total(), |own, &reason| own.wrapping_sub(exits.reason(reason).count()))
}

/// What is seen of a vCPU at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The moment, in ticks.
    pub now: u64,
    /// For how many ticks before it the machine has stood still: an emulator whose host is busy.
    pub late: u64,
    /// [`own_exits`].
    pub exits: u64,
    /// How long it has been ready without a CPU, in ticks, since it was made.
    pub ready: u64,
}

/// What the watchdog knows of a vCPU. The timer is noted by the CPU that holds the vCPU; everything else is the watchdog's own.
#[derive(Debug, Default)]
pub struct Watch {
    /// Physical count at which its next timer expires.
    timer: Counter,
    /// The last sign of life; 0: none yet.
    since: Counter,
    exits: Counter,
    ready: Counter,
}

impl Watch {
    /// Notes when the vCPU's next timer expires: a physical count, or [`NO_TIMER`].
    pub fn note_timer(&self, deadline: u64) {
        self.timer.set(deadline);
    }

    /// It is off: what was known of it is void.
    pub fn forget(&self) {
        self.since.set(0);
    }

    /// For how many ticks the vCPU has shown no sign of life though it could have; 0 if this sample is one.
    pub fn quiet(&self, sample: Sample) -> u64 {
        let timer = self.timer.get();
        let programmed = timer != NO_TIMER && timer > sample.now;
        let since = match self.since.get() {
            0 => 0,
            since => since.saturating_add(sample.late).min(sample.now),
        };
        self.since.set(since);
        if programmed || since == 0 || sample.exits != self.exits.get() {
            self.since.set(sample.now.max(1));
            self.exits.set(sample.exits);
            self.ready.set(sample.ready);
            return 0;
        }
        let waited = sample.ready.saturating_sub(self.ready.get());
        sample.now.saturating_sub(since).saturating_sub(waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(now: u64, exits: u64, ready: u64) -> Sample {
        Sample { now, late: 0, exits, ready }
    }

    #[test]
    fn quiet_time_runs_from_the_last_exit() {
        let watch = Watch::default();
        assert_eq!(watch.quiet(at(1000, 5, 0)), 0);
        assert_eq!(watch.quiet(at(1100, 5, 0)), 100);
        assert_eq!(watch.quiet(at(1200, 6, 0)), 0);
        assert_eq!(watch.quiet(at(1500, 6, 0)), 300);
    }

    #[test]
    fn a_timer_that_is_programmed_is_a_sign_of_life_until_it_expires() {
        let watch = Watch::default();
        watch.note_timer(2000);
        assert_eq!(watch.quiet(at(1000, 5, 0)), 0);
        assert_eq!(watch.quiet(at(1999, 5, 0)), 0);
        assert_eq!(watch.quiet(at(2500, 5, 0)), 501);
        watch.note_timer(NO_TIMER);
        assert_eq!(watch.quiet(at(2600, 5, 0)), 601);
    }

    #[test]
    fn time_without_a_cpu_does_not_count() {
        let watch = Watch::default();
        watch.quiet(at(1000, 5, 70));
        assert_eq!(watch.quiet(at(2000, 5, 870)), 200);
        assert_eq!(watch.quiet(at(2000, 5, 5000)), 0);
    }

    #[test]
    fn time_in_which_the_machine_stood_still_does_not_count() {
        let watch = Watch::default();
        watch.quiet(at(1000, 5, 0));
        assert_eq!(watch.quiet(Sample { late: 700, ..at(2000, 5, 0) }), 300);
        assert_eq!(watch.quiet(at(2100, 5, 0)), 400);
        assert_eq!(watch.quiet(Sample { late: 9000, ..at(2200, 5, 0) }), 0, "no more than there was");
    }

    #[test]
    fn one_that_was_off_begins_anew() {
        let watch = Watch::default();
        watch.quiet(at(1000, 5, 0));
        watch.forget();
        assert_eq!(watch.quiet(at(9000, 5, 0)), 0);
        assert_eq!(watch.quiet(at(9001, 5, 0)), 1);
    }

    #[test]
    fn exits_that_the_hypervisor_causes_are_not_the_guests() {
        let exits = ExitStats::new();
        for reason in Reason::ALL {
            exits.record(reason, 10);
        }
        assert_eq!(own_exits(&exits), (Reason::COUNT - NOT_ITS_OWN.len()) as u64);
        exits.record(Reason::IrqSlice, 10);
        assert_eq!(own_exits(&exits), (Reason::COUNT - NOT_ITS_OWN.len()) as u64);
        exits.record(Reason::Wfi, 10);
        assert_eq!(own_exits(&exits), (Reason::COUNT - NOT_ITS_OWN.len()) as u64 + 1);
    }
}
