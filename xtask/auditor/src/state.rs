//! The sums, for each CPU.
//!
//! A CPU is known by its affinities (MPIDR_EL1). QEMU's own number of it is of no use: with one thread for all CPUs, versions up
//! to 10.0 give the number of the CPU that has translated the code. What can be read is VMPIDR_EL2, which begins as a copy of MPIDR_EL1, and
//! becomes a guest's; and TPIDR_EL2, in which a hypervisor keeps what is its own on each CPU. So when a CPU first writes TPIDR_EL2, before there
//! is any guest, both are noted.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use serde_json::{Map, json};

use crate::event::Event;
use crate::exit;
use crate::ghost::Ghosts;
use crate::image::Image;

/// The affinities in MPIDR_EL1 and VMPIDR_EL2.
const AFFINITIES: u64 = 0xff_00ff_ffff;

/// What a CPU's registers hold before an instruction, and how far it has come.
#[derive(Debug, Clone, Copy, Default)]
pub struct Registers {
    /// TPIDR_EL2.
    pub tpidr: u64,
    /// VMPIDR_EL2.
    pub vmpidr: u64,
    /// ESR_EL2.
    pub syndrome: u64,
    /// The general-purpose register that the instruction names.
    pub source: u64,
    /// Instructions of Odometer that it has executed, this one among them, if they are counted.
    pub instructions: Option<u64>,
}

/// Instructions at EL2, from vectors to ERETs, of exits that went straight back: without a write of VTTBR_EL2.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    exits: u64,
    instructions: u64,
}

/// Everything that was seen.
#[derive(Debug, Default)]
pub struct State {
    /// Affinities, by TPIDR_EL2.
    names: BTreeMap<u64, u64>,
    /// By affinities.
    counts: BTreeMap<u64, BTreeMap<&'static str, u64>>,
    /// CPUs that have asked others to invalidate, and not waited for it yet.
    outstanding: BTreeSet<u64>,
    ghosts: Ghosts,
    /// CPUs that have left a guest, and may go straight back: for which class of exits, and where the count of instructions stood.
    left: BTreeMap<u64, (&'static str, u64)>,
    /// By class of exits, over all CPUs.
    spent: BTreeMap<&'static str, Spent>,
}

impl State {
    /// A CPU with these registers executes an instruction that is this event.
    pub fn executes(&mut self, event: Event, registers: Registers) {
        let own = registers.vmpidr & AFFINITIES;
        let cpu = self.names.get(&registers.tpidr).copied().unwrap_or(own);
        let name = match event {
            Event::Entry => {
                self.enters(cpu, registers.instructions);
                "entry"
            }
            Event::OwnException => "own_exception",
            Event::Exit(vector) => {
                let class = exit::class(vector, registers.syndrome);
                if let Some(instructions) = registers.instructions {
                    self.left.insert(cpu, (class, instructions - 1));
                }
                self.count(cpu, class);
                "exit"
            }
            Event::VttbrWrite(_) => {
                self.ghosts.vttbr(cpu, registers.source);
                // It doesn't go straight back.
                self.left.remove(&cpu);
                "vttbr_write"
            }
            Event::TpidrWrite(_) => {
                self.names.insert(registers.source, cpu);
                "tpidr_write"
            }
            // One that has nothing to wait for is there for another reason.
            Event::Barrier if !self.outstanding.remove(&cpu) => return,
            Event::Barrier => "barrier",
            Event::Tlbi(kind) => {
                if kind.is_broadcast() {
                    self.outstanding.insert(cpu);
                }
                self.ghosts.invalidates(cpu, kind);
                kind.name()
            }
        };
        self.count(cpu, name);
    }

    fn enters(&mut self, cpu: u64, instructions: Option<u64>) {
        if let (Some(now), Some((class, then))) = (instructions, self.left.remove(&cpu)) {
            let spent = self.spent.entry(class).or_default();
            spent.exits += 1;
            spent.instructions += now - then;
        }
    }

    fn count(&mut self, cpu: u64, name: &'static str) {
        *self.counts.entry(cpu).or_default().entry(name).or_default() += 1;
    }

    /// Writes what was seen, as JSON objects, one a line: of the image, of VMIDs, of instructions if they were counted, and of each CPU. CPUs are numbered in the order of
    /// their affinities.
    ///
    /// # Errors
    /// The output can't be written.
    pub fn write(&self, out: &mut impl Write, image: &Image) -> io::Result<()> {
        writeln!(
            out,
            "{}",
            json!({ "kind": "image", "found": image.is_found(), "unplaced": image.unplaced() })
        )?;
        let Ghosts { warm, cold, stale, .. } = self.ghosts;
        writeln!(out, "{}", json!({ "kind": "vmid", "warm": warm, "cold": cold, "stale": stale }))?;
        if !self.spent.is_empty() {
            let spent = self.spent.iter().map(|(class, Spent { exits, instructions })| {
                ((*class).to_owned(), json!({ "exits": exits, "instructions": instructions }))
            });
            writeln!(out, "{}", json!({ "kind": "instructions", "spent": spent.collect::<Map<_, _>>() }))?;
        }
        for (number, events) in self.counts.values().enumerate() {
            writeln!(out, "{}", json!({ "kind": "cpu", "cpu": number, "events": events }))?;
        }
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Vector;
    use crate::tlbi::Tlbi;
    use serde_json::Value;

    /// A CPU with this TPIDR_EL2, in a guest whose VMPIDR_EL2 says something else.
    fn later(tpidr: u64) -> Registers {
        Registers { tpidr, vmpidr: 0x8000_0003, ..Registers::default() }
    }

    /// Two CPUs that got their names; the second is called before the first.
    fn state() -> State {
        let mut state = State::default();
        for (affinity, name) in [(1, 0xb000), (0, 0xa000)] {
            let registers =
                Registers { vmpidr: 0x8000_0000 | affinity, source: name, ..Registers::default() };
            state.executes(Event::Tlbi(Tlbi::Own), registers);
            state.executes(Event::TpidrWrite(8), registers);
        }
        state
    }

    fn lines(state: &State) -> Vec<Value> {
        let mut text = Vec::new();
        state.write(&mut text, &Image::new(0, 4)).unwrap();
        text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }

    fn count(state: &State, cpu: usize, event: &str) -> u64 {
        lines(state)[2 + cpu]["events"][event].as_u64().unwrap_or(0)
    }

    #[test]
    fn a_cpu_keeps_its_number_whatever_a_guest_is_told() {
        let mut state = state();
        state.executes(Event::Entry, later(0xb000));
        state.executes(Event::Exit(Vector::Irq), later(0xb000));
        state.executes(Event::Exit(Vector::Synchronous), Registers { syndrome: 0x16 << 26, ..later(0xa000) });
        let lines = lines(&state);
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0], json!({ "kind": "image", "found": false, "unplaced": 0 }));
        assert_eq!(
            lines[2],
            json!({ "kind": "cpu", "cpu": 0, "events": { "exit": 1, "exit_hvc": 1, "own_tlbi": 1, "tpidr_write": 1 } })
        );
        assert_eq!(
            lines[3]["events"],
            json!({ "entry": 1, "exit": 1, "exit_interrupt": 1, "own_tlbi": 1, "tpidr_write": 1 })
        );
    }

    #[test]
    fn instructions_count_from_the_vector_to_the_eret() {
        let mut state = state();
        let mut executes = |cpu, event, instructions| {
            state.executes(event, Registers { instructions: Some(instructions), ..later(cpu) })
        };
        executes(0xa000, Event::Entry, 500);
        for exit in 0..2 {
            executes(0xa000, Event::Exit(Vector::Irq), 501 + 100 * exit);
            executes(0xb000, Event::Exit(Vector::Serror), 1 + exit);
            executes(0xa000, Event::Entry, 600 + 100 * exit);
        }
        executes(0xa000, Event::Exit(Vector::Irq), 1001);
        executes(0xa000, Event::VttbrWrite(0), 1100);
        executes(0xa000, Event::Entry, 1200);
        let expected = json!({ "exit_interrupt": { "exits": 2, "instructions": 200 } });
        assert_eq!(lines(&state)[2], json!({ "kind": "instructions", "spent": expected }));
    }

    #[test]
    fn a_barrier_counts_once_and_only_after_a_broadcast_of_its_cpu() {
        let mut state = state();
        let mut executes = |cpu, event| state.executes(event, later(cpu));
        executes(0xa000, Event::Barrier);
        executes(0xa000, Event::Tlbi(Tlbi::Vmalle1));
        executes(0xa000, Event::Barrier);
        executes(0xa000, Event::Tlbi(Tlbi::Vmalls12e1Is));
        executes(0xb000, Event::Barrier);
        executes(0xa000, Event::Tlbi(Tlbi::Vmalls12e1Is));
        executes(0xa000, Event::Barrier);
        executes(0xa000, Event::Barrier);
        assert_eq!([0, 1].map(|cpu| count(&state, cpu, "barrier")), [1, 0]);
        assert_eq!(count(&state, 0, "vmalls12e1is"), 2);
    }

    #[test]
    fn a_vmid_that_goes_to_another_vm_too_early_is_reported() {
        let mut state = state();
        let mut write = |source| state.executes(Event::VttbrWrite(0), Registers { source, ..later(0xa000) });
        let vm = 1 << 48;
        for value in [0x9000, vm | 0x1000, 0x9000, vm | 0x1000, 0x9000, vm | 0x2000] {
            write(value);
        }
        assert_eq!(lines(&state)[1], json!({ "kind": "vmid", "warm": 1, "cold": 1, "stale": 1 }));
        assert_eq!(count(&state, 0, "vttbr_write"), 6);
    }
}
