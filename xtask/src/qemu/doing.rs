//! What guests do that don't end: asked of the hypervisor when a run has taken too long, by two reports a second apart.

use std::fmt::Write as _;
use std::io::Write;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use super::captured::Captured;
use crate::report::records::{Report, Tally, Times};
use crate::report::table::{Table, grouped};

/// The keys that ask for a report: Ctrl-O Ctrl-R.
const KEYS: &[u8] = b"\x0f\x12";
/// How long an answer may take at most. A machine of many CPUs on one host thread is slow.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between the two reports.
const BETWEEN: Duration = Duration::from_secs(1);
/// vCPUs shown.
const SHOWN: usize = 16;

/// Asks, and says what the vCPUs did meanwhile; or that there was no answer, within the time that a run may be silent.
pub fn ask(keyboard: &mut impl Write, lines: &Receiver<String>, silence: Duration) -> String {
    // Not the run's own: its last lines are shown, not those of these reports.
    let mut captured = Captured::default();
    let mut report = || -> Option<Report> {
        let from = captured.reports.len();
        keyboard.write_all(KEYS).and_then(|()| keyboard.flush()).ok()?;
        let deadline = Instant::now() + PATIENCE.min(silence);
        // The allocator's record is a report's last.
        while !captured.reports[from..].iter().any(|record| record["kind"] == "vmid") {
            let line = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()?;
            captured.add(&line).ok()?;
        }
        Report::read(&captured.reports[from..]).ok()
    };
    let both = report().and_then(|first| {
        thread::sleep(BETWEEN);
        Some((first, report()?))
    });
    match both {
        Some((first, second)) => text(&first, &second),
        None => "the hypervisor did not answer when it was asked for a report (Ctrl-O Ctrl-R)".into(),
    }
}

/// What the vCPUs of running VMs did between two reports.
fn text(first: &Report, second: &Report) -> String {
    let mut table = Table::new([
        "running",
        "vCPU",
        "guest",
        "hypervisor",
        "ready",
        "blocked",
        "off",
        "exits",
        "most of them",
    ]);
    let running = |tally: &&Tally| second.vms.get(&tally.vm).is_none_or(|vm| vm.state == "running");
    let vcpus: Vec<&Tally> = second.vcpus.values().filter(running).collect();
    if vcpus.is_empty() {
        return "no VM runs any more".into();
    }
    let nothing = Tally::default();
    for vcpu in vcpus.iter().take(SHOWN) {
        let before = first.vcpus.get(&(vcpu.vm.clone(), vcpu.vcpu)).unwrap_or(&nothing);
        let of = |times: &Times| [times.guest, times.hypervisor, times.ready, times.blocked, times.off];
        let spent: Vec<u64> = of(&vcpu.time_ns)
            .iter()
            .zip(of(&before.time_ns))
            .map(|(now, then)| now.saturating_sub(then))
            .collect();
        let all = spent.iter().sum::<u64>().max(1) as f64;
        let count =
            |tally: &Tally, name: &str| tally.exits.by_reason.get(name).map_or(0, |reason| reason.count);
        let most = vcpu
            .exits
            .by_reason
            .keys()
            .map(|name| (count(vcpu, name).saturating_sub(count(before, name)), name))
            .filter(|(count, _)| *count > 0)
            .max();
        let mut cells = vec![vcpu.vm.clone(), vcpu.vcpu.to_string()];
        cells.extend(spent.iter().map(|time| format!("{:.0} %", 100.0 * *time as f64 / all)));
        cells.push(grouped(vcpu.exits.total.saturating_sub(before.exits.total) as f64));
        cells.push(most.map_or_else(String::new, |(count, name)| format!("{name} ({count})")));
        table.row(cells);
    }
    let mut text = format!("what the VMs that still run did in a second of the host's time:\n{table}");
    if vcpus.len() > SHOWN {
        let _ = writeln!(text, "... and {} more vCPUs", vcpus.len() - SHOWN);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn report(guest: u64, blocked: u64, wfi: u64) -> String {
        format!(
            r#"@odometer {{"schema":1,"kind":"vcpu","vm":"a","vcpu":0,"time_ns":{{"guest":{guest},"blocked":{blocked}}},"exits":{{"total":{wfi},"by_reason":{{"wfi":{{"count":{wfi}}}}}}}}}
@odometer {{"schema":1,"kind":"vcpu","vm":"gone","vcpu":0,"time_ns":{{"off":1}}}}
@odometer {{"schema":1,"kind":"vm","vm":"a","state":"running"}}
@odometer {{"schema":1,"kind":"vm","vm":"gone","state":"off"}}
@odometer {{"schema":1,"kind":"vmid","policy":"clear"}}"#
        )
    }

    #[test]
    fn what_a_guest_did_between_two_reports_is_told() {
        let (sender, lines) = channel();
        for line in report(100, 500, 3).lines().chain(report(200, 1400, 10).lines()) {
            sender.send(line.to_owned()).unwrap();
        }
        let mut typed = Vec::new();
        let text = ask(&mut typed, &lines, Duration::ZERO);
        assert_eq!(typed, [KEYS, KEYS].concat());
        let line = text.lines().find(|line| line.starts_with("a ")).unwrap_or_else(|| panic!("{text}"));
        for part in ["10 %", "90 %", " 7 ", "wfi (7)"] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        assert!(!text.contains("gone"), "{text}");
    }

    #[test]
    fn no_answer_is_said() {
        let (_, lines) = channel();
        assert!(ask(&mut Vec::new(), &lines, Duration::ZERO).contains("did not answer"));
    }
}
