//! From events to what a lane shows: spans and moments.
//!
//! A CPU's lane is without gaps: a guest, an exit by its reason, a switch between vCPUs, idle. A vCPU's lane shows when it had a CPU,
//! and in that its guest and its exits.

use odometer::stats::Reason;
use odometer::trace::{CpuTrace, Decoded, Event, Flush, Kind};

/// Where something is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// A CPU, by its number.
    Cpu(usize),
    /// A vCPU.
    Vcpu(Who),
}

/// A vCPU, by the numbers of its VM and in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Who {
    /// The VM.
    pub vm: u16,
    /// The vCPU.
    pub vcpu: u16,
}

/// What is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// This vCPU's guest executes.
    Guest(Who),
    /// The hypervisor does what the guest left for.
    Exit(Reason),
    /// The hypervisor gives the CPU to another vCPU.
    Switch,
    /// The CPU waits for work.
    Idle,
    /// The vCPU has this CPU.
    Has(usize),
    /// The VMID allocator takes its lock.
    VmidSlow,
    /// A new generation of VMIDs.
    Rollover,
    /// This VMID is taken from its VM.
    Reclaim(u16),
    /// TLBs are invalidated: which VMID, or how many.
    Flush(Flush, u16),
    /// This CPU is interrupted on behalf of a vCPU.
    Kick(usize, Who),
    /// The interrupt becomes pending for the vCPU.
    Inject(u16),
}

/// Something that is shown, in ticks of the counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Where.
    pub lane: Lane,
    /// What.
    pub what: What,
    /// Since when.
    pub from: u64,
    /// Until when; `None`: it is a moment.
    pub to: Option<u64>,
}

/// What all lanes show, in the order of time.
pub fn of(trace: &Decoded) -> Vec<Mark> {
    let mut marks = Vec::new();
    for (cpu, trace) in trace.cpus.iter().enumerate() {
        one_cpu(cpu, trace, &mut marks);
    }
    // Of spans that begin together the longer one is around the other.
    marks.sort_by_key(|mark| (mark.from, std::cmp::Reverse(mark.to)));
    marks
}

/// A CPU's events in the order of time: an exit is written behind what its handler did.
pub fn in_order(trace: &CpuTrace) -> Vec<Event> {
    let mut events = trace.events.clone();
    events.sort_by_key(|event| event.time);
    events
}

/// What a CPU is at.
#[derive(Debug, Clone, Copy)]
struct Open {
    what: What,
    who: Option<Who>,
    from: u64,
}

fn one_cpu(cpu: usize, trace: &CpuTrace, marks: &mut Vec<Mark>) {
    let mut open: Option<Open> = None;
    let mut has: Option<(Who, u64)> = None;
    for event in in_order(trace) {
        let who = Who { vm: event.vm, vcpu: event.vcpu };
        let lane = Lane::Vcpu(who);
        let begins = match event.kind {
            Kind::Enter => Some((What::Guest(who), Some(who))),
            Kind::Exit => {
                let reason = Reason::ALL.get(usize::from(event.detail)).copied().unwrap_or(Reason::Other);
                Some((What::Exit(reason), Some(who)))
            }
            Kind::ScheduleOut | Kind::IdleEnd => Some((What::Switch, None)),
            Kind::IdleBegin => Some((What::Idle, None)),
            _ => None,
        };
        if let Some((what, of)) = begins {
            close(cpu, open.take(), event.time, marks);
            open = Some(Open { what, who: of, from: event.time });
        }
        let moment = match event.kind {
            Kind::ScheduleIn => {
                has = Some((who, event.time));
                None
            }
            Kind::ScheduleOut => {
                if let Some((who, from)) = has.take() {
                    marks.push(Mark {
                        lane: Lane::Vcpu(who),
                        what: What::Has(cpu),
                        from,
                        to: Some(event.time),
                    });
                }
                None
            }
            Kind::VmidSlow => Some((Lane::Cpu(cpu), What::VmidSlow)),
            Kind::VmidRollover => Some((Lane::Cpu(cpu), What::Rollover)),
            Kind::VmidReclaim => Some((Lane::Cpu(cpu), What::Reclaim(event.value))),
            Kind::VmidFlush => {
                let flush = Flush::ALL.get(usize::from(event.detail)).copied().unwrap_or(Flush::All);
                Some((Lane::Cpu(cpu), What::Flush(flush, event.value)))
            }
            Kind::Kick => Some((Lane::Cpu(cpu), What::Kick(event.value.into(), who))),
            Kind::Inject => Some((lane, What::Inject(event.value))),
            Kind::Enter | Kind::Exit | Kind::IdleBegin | Kind::IdleEnd => None,
        };
        if let Some((lane, what)) = moment {
            marks.push(Mark { lane, what, from: event.time, to: None });
        }
    }
    // What was going on at the end is shown as far as it was seen.
    let end = trace.events.iter().map(|event| event.time).max().unwrap_or(0);
    close(cpu, open, end, marks);
    if let Some((who, from)) = has {
        marks.push(Mark { lane: Lane::Vcpu(who), what: What::Has(cpu), from, to: Some(end) });
    }
}

/// The CPU's span ends, and with it the vCPU's, if it is of one.
fn close(cpu: usize, open: Option<Open>, to: u64, marks: &mut Vec<Mark>) {
    let Some(Open { what, who, from }) = open else { return };
    let lanes = [Some(Lane::Cpu(cpu)), who.map(Lane::Vcpu)];
    marks.extend(lanes.into_iter().flatten().map(|lane| Mark { lane, what, from, to: Some(to) }));
}

#[cfg(test)]
#[path = "timeline_tests.rs"]
pub mod tests;
