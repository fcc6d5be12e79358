//! The sums, for each CPU.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use serde_json::{Map, Value, json};

use crate::event::Event;
use crate::image::Image;

/// What one CPU has executed. Only the thread that emulates the CPU writes it.
#[derive(Debug, Default)]
pub struct Cpu {
    counts: [AtomicU64; Event::ALL.len()],
    /// It has asked other CPUs to invalidate, and not waited for it yet.
    outstanding: AtomicBool,
}

impl Cpu {
    /// The CPU executes an instruction that is this event.
    pub fn executes(&self, event: Event) {
        if event == Event::Barrier {
            // One that has nothing to wait for is there for another reason.
            if !self.outstanding.swap(false, Relaxed) {
                return;
            }
        } else if event.is_broadcast() {
            self.outstanding.store(true, Relaxed);
        }
        self.counts[event as usize].fetch_add(1, Relaxed);
    }

    fn record(&self, number: usize) -> Value {
        let counts = Event::ALL
            .iter()
            .map(|event| (event.name().to_owned(), Value::from(self.counts[*event as usize].load(Relaxed))));
        json!({ "kind": "cpu", "cpu": number, "events": counts.collect::<Map<_, _>>() })
    }
}

/// Writes what was found, as JSON objects, one a line: of the image, and of each CPU.
///
/// # Errors
/// The output can't be written.
pub fn write(out: &mut impl Write, image: &Image, cpus: &[Cpu]) -> io::Result<()> {
    let found = json!({ "kind": "image", "found": image.is_found(), "unplaced": image.unplaced() });
    writeln!(out, "{found}")?;
    for (number, cpu) in cpus.iter().enumerate() {
        writeln!(out, "{}", cpu.record(number))?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(cpu: &Cpu, event: Event) -> u64 {
        cpu.record(0)["events"][event.name()].as_u64().unwrap()
    }

    #[test]
    fn a_barrier_counts_once_and_only_after_a_broadcast() {
        let cpu = Cpu::default();
        cpu.executes(Event::Barrier);
        cpu.executes(Event::Vmalle1);
        cpu.executes(Event::Barrier);
        assert_eq!(count(&cpu, Event::Barrier), 0);
        cpu.executes(Event::Vmalls12e1Is);
        cpu.executes(Event::Vmalls12e1Is);
        cpu.executes(Event::Barrier);
        cpu.executes(Event::Barrier);
        assert_eq!((count(&cpu, Event::Barrier), count(&cpu, Event::Vmalls12e1Is)), (1, 2));
    }

    #[test]
    fn a_line_for_the_image_and_one_for_each_cpu() {
        let cpus = [Cpu::default(), Cpu::default()];
        cpus[1].executes(Event::Exit);
        let mut text = Vec::new();
        write(&mut text, &Image::new(0, 4), &cpus).unwrap();
        let lines: Vec<Value> =
            text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0], json!({ "kind": "image", "found": false, "unplaced": 0 }));
        assert_eq!((&lines[1]["events"]["exit"], &lines[2]["events"]["exit"]), (&json!(0), &json!(1)));
        assert_eq!((&lines[2]["cpu"], &lines[2]["kind"]), (&json!(1), &json!("cpu")));
    }
}
