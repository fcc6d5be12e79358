//! Which idle VM loses its VMID.

use super::TlbHardware;
use super::config::Victim;
use super::holder::Holder;
use super::id::Id;
use super::sync::Relaxed;
use super::tenure::{RECENT, Tenure};

/// How many that were used since they were last looked at are passed over at most, before the next idle one is taken.
const CHANCES: usize = 8;
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
                && !self.seems_to_run(tenure)
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

    /// The one that has not been used for the longest time, by the order that the lock's holders know. Who is found to have been used
    /// since, on the fast path, goes to the other end, as who runs does; after some of them the next idle one does.
    fn longest_unused(&mut self) -> Option<u16> {
        for looked_at in 0..self.pool.tenures.each.len() {
            let index = self.pool.tenures.order.oldest();
            let tenure = self.pool.tenures.each.get(index as usize).filter(|tenure| tenure.id != Id::NONE)?;
            if !self.seems_to_run(tenure) && (looked_at >= CHANCES || !self.was_used(index)) {
                return Some(index);
            }
            self.pool.tenures.order.touch(index);
        }
        None
    }

    /// The next idle one that was not used since it was last looked at.
    fn second_chance(&mut self) -> Option<u16> {
        let mut last = None;
        self.idle_from_hand(CHANCES, |holder, index| {
            last = Some(index);
            !holder.was_used(index)
        });
        last
    }

    /// Of the VMIDs given last, the newest one that is idle and whose VM was not seen to come back.
    fn newest_without_return(&mut self) -> Option<u16> {
        for back in 1..=RECENT {
            let tenures = &self.pool.tenures;
            let index = tenures.recent[(tenures.next_recent + RECENT - back) % RECENT];
            let Some(tenure) = tenures.each.get(index as usize) else { continue };
            if tenure.id == Id::NONE || tenure.returned || self.seems_to_run(tenure) {
                continue;
            }
            if !self.was_used(index) {
                return Some(index);
            }
        }
        None
    }

    /// Whether a VM has entered by the fast path, and so returned to a CPU, since that was last asked.
    fn was_used(&mut self, index: u16) -> bool {
        let Some(tenure) = self.pool.tenures.each.get(index as usize) else { return false };
        let uses = self.uses(tenure);
        let Some(tenure) = self.pool.tenures.get(index) else { return false };
        let used = uses != tenure.uses;
        tenure.returned |= used;
        tenure.uses = uses;
        used
    }

    /// A number that changes whenever a VM enters by the fast path: for each CPU that remembers the tenure, its count of schedule-ins
    /// then; 0 if it hasn't.
    fn uses(&self, tenure: &Tenure) -> u64 {
        let known = tenure.used.iter().map(|cpu| self.slot(cpu).known(tenure.id));
        known.filter(|known| known.id.load(Relaxed) == tenure.id.0).map(|known| known.seen.get()).sum()
    }
}
