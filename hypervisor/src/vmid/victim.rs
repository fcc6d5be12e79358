//! Which idle VM loses its VMID.

use super::TlbHardware;
use super::config::Victim;
use super::holder::Holder;
use super::id::Id;
use super::slot::CpuSlot;
use super::sync::Relaxed;
use super::tenure::{RECENT, Tenure};

/// How many VMIDs of idle VMs are compared at most.
const WINDOW: usize = 16;
/// `newest` takes what was unused for the longest time once in so many choices, so that what never comes back doesn't stay.
const OLDEST_ONCE_IN: u64 = 16;

/// `adaptive` tries the rule that is worse once in so many choices, to learn whether it still is.
const OTHER_ONCE_IN: u64 = 8;
/// After so many choices by a rule, what came before counts half.
const MEMORY: u32 = 64;

/// What a victim was chosen for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    /// It is the newest without a return.
    Newest = 0,
    /// It was unused for the longest time, or is one that none of the two names.
    Oldest = 1,
}

/// How often each rule has chosen lately, and how often the VM it chose came back before its VMID had passed on again.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Record {
    choices: [u32; 2],
    regrets: [u32; 2],
}

impl Record {
    pub(super) fn choice(&mut self, rule: Rule) {
        let at = rule as usize;
        self.choices[at] += 1;
        if self.choices[at] == MEMORY {
            self.choices[at] /= 2;
            self.regrets[at] /= 2;
        }
    }

    pub(super) fn regret(&mut self, rule: Rule) {
        self.regrets[rule as usize] += 1;
    }

    /// The rule with fewer regrets for each choice; `newest` if they are equal.
    fn better(&self) -> Rule {
        let [newest, oldest] = [0, 1].map(|at| self.regrets[at] * self.choices[1 - at].max(1));
        if newest <= oldest { Rule::Newest } else { Rule::Oldest }
    }
}

impl<H: TlbHardware> Holder<'_, H> {
    /// An index whose VM runs nowhere, as far as can be seen; `None` if all do.
    pub(super) fn choose(&mut self) -> Option<(u16, Rule)> {
        let victim = self.shared.victim;
        let rule = match victim {
            Victim::Lru => Rule::Oldest,
            Victim::Random => {
                self.pool.tenures.hand = self.random() as usize % self.pool.tenures.each.len().max(1);
                return self.next_idle().map(|index| (index, Rule::Oldest));
            }
            Victim::Clock => return self.second_chance().map(|index| (index, Rule::Oldest)),
            Victim::Newest if self.random().is_multiple_of(OLDEST_ONCE_IN) => Rule::Oldest,
            Victim::Newest => Rule::Newest,
            Victim::Adaptive => {
                let other = self.random().is_multiple_of(OTHER_ONCE_IN);
                match (self.pool.tenures.record.better(), other) {
                    (Rule::Newest, false) | (Rule::Oldest, true) => Rule::Newest,
                    _ => Rule::Oldest,
                }
            }
        };
        let newest = if rule == Rule::Newest { self.newest_without_return() } else { None };
        match newest {
            Some(index) => Some((index, Rule::Newest)),
            None => self.longest_unused().map(|index| (index, Rule::Oldest)),
        }
    }

    /// xorshift64.
    fn random(&mut self) -> u64 {
        let state = &mut self.pool.tenures.random;
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state >> 32
    }

    /// The first `most` indices from the hand on, once around, whose VMs have a VMID and run nowhere; `accept` may end the
    /// search. The hand moves behind what was looked at last.
    fn idle_from_hand(&mut self, most: usize, mut accept: impl FnMut(&mut Self, u16) -> bool) {
        let count = self.pool.tenures.each.len();
        let mut found = 0;
        for _ in 0..count {
            let at = self.pool.tenures.hand % count;
            self.pool.tenures.hand = at + 1;
            if let Some(tenure) = self.pool.tenures.each.get(at)
                && tenure.id != Id::NONE
                && !self.runs_somewhere(tenure)
            {
                found += 1;
                if accept(self, at as u16) || found == most {
                    return;
                }
            }
        }
    }

    /// The next idle one.
    fn next_idle(&mut self) -> Option<u16> {
        let mut next = None;
        self.idle_from_hand(1, |_, index| {
            next = Some(index);
            true
        });
        next
    }

    /// Of the next idle ones the one that has not run for the longest time.
    fn longest_unused(&mut self) -> Option<u16> {
        let mut best: Option<(u64, u16)> = None;
        self.idle_from_hand(WINDOW, |holder, index| {
            let age = holder.pool.tenures.each.get(index as usize).map_or(0, |tenure| holder.age(tenure));
            if best.is_none_or(|(most, _)| age > most) {
                best = Some((age, index));
            }
            false
        });
        best.map(|(_, index)| index)
    }

    /// The next idle one that was not used since it was last looked at.
    fn second_chance(&mut self) -> Option<u16> {
        let mut last = None;
        self.idle_from_hand(WINDOW, |holder, index| {
            last = Some(index);
            !holder.was_used(index)
        });
        last
    }

    /// Of the VMIDs given last, the newest one that is idle and whose VM was not seen to come back.
    fn newest_without_return(&mut self) -> Option<u16> {
        let mut found = None;
        for back in 1..=RECENT {
            let tenures = &self.pool.tenures;
            let index = tenures.recent[(tenures.next_recent + RECENT - back) % RECENT];
            let Some(tenure) = tenures.each.get(index as usize) else { continue };
            if tenure.id == Id::NONE || self.runs_somewhere(tenure) {
                continue;
            }
            self.was_used(index);
            let returned = self.pool.tenures.each.get(index as usize).is_some_and(|tenure| tenure.returned);
            if !returned && found.is_none() {
                found = Some(index);
            }
        }
        found
    }

    /// Whether an idle VM has run since it was last looked at. If it was idle then too, it has returned.
    fn was_used(&mut self, index: u16) -> bool {
        let Some(tenure) = self.pool.tenures.each.get(index as usize) else { return false };
        let uses = 1 + self.entries_seen(tenure).map(|(_, seen)| seen).sum::<u64>();
        let Some(tenure) = self.pool.tenures.get(index) else { return false };
        let used = uses != tenure.uses;
        tenure.returned |= used && tenure.uses != 0;
        tenure.uses = uses;
        used
    }

    /// For how many schedule-ins of a CPU that has run it the VM has not run there: the fewest of all.
    fn age(&self, tenure: &Tenure) -> u64 {
        let ages = self.entries_seen(tenure).map(|(slot, seen)| slot.entries.get().wrapping_sub(seen));
        ages.min().unwrap_or(u64::MAX)
    }

    /// The CPUs that remember the tenure, with their counts of schedule-ins when they last ran its VM.
    fn entries_seen(&self, tenure: &Tenure) -> impl Iterator<Item = (&CpuSlot, u64)> {
        let id = tenure.id;
        tenure.used.iter().map(|cpu| self.slot(cpu)).filter_map(move |slot| {
            let known = slot.known(id);
            (known.id.load(Relaxed) == id.0).then(|| (slot, known.seen.get()))
        })
    }
}
