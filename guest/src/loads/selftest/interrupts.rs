//! The interrupt controller and the timer.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{Checks, ONE_VCPU};
use crate::arch::{cpu, gic};
use crate::kernel::{cpus, machine};
use crate::samples::{nanoseconds, ticks};
use crate::sync::{Masked, relax};

/// The first SGI that the checks use; those before it are the kernel's.
const FIRST_SGI: u32 = 3;
/// An SPI that has no device here.
const SPI: u32 = 40;
/// One behind the last SPI that is tried: arrivals are kept up to here.
const SPI_END: u32 = 64;

/// Runs the checks.
pub fn run(checks: &mut Checks) {
    sgis(checks);
    timer(checks);
    registers(checks);
    spis(checks);
    flood(checks);
}

/// Time for an interrupt that must not come, in nanoseconds.
const NOT_COMING: u64 = 500_000;

fn pause(nanoseconds: u64) {
    let end = cpu::counter() + ticks(nanoseconds, cpu::frequency());
    while cpu::counter() < end {
        relax();
    }
}

static MISSING: AtomicU32 = AtomicU32::new(0);

/// Sends one SGI to each CPU, this one too, and waits until each has come.
fn send_to_all() {
    let intid = FIRST_SGI + cpu::index() as u32;
    for target in 0..cpus::number() {
        let before = cpus::get(target).arrivals(intid);
        cpus::send(target, intid);
        if !cpus::wait(|| cpus::get(target).arrivals(intid) == before + 1) {
            MISSING.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn sgis(checks: &mut Checks) {
    cpus::run_everywhere(send_to_all);
    let missing = MISSING.load(Ordering::Relaxed);
    checks.note("sgi_all_pairs", missing == 0, format_args!("{missing} missing"));

    let me = cpus::this();
    let ok = (FIRST_SGI..16).all(|intid| {
        let before = me.arrivals(intid);
        cpus::send(0, intid);
        cpus::wait(|| me.arrivals(intid) == before + 1)
    });
    checks.check("sgi_all_numbers", ok);

    if cpus::number() > 1 {
        let arrivals = |i: usize| cpus::get(i).arrivals(15);
        let before: [u64; 8] = core::array::from_fn(arrivals);
        gic::send_sgi((1 << 40) | (15 << 24)); // IRM: all but self
        let come = |i: usize| arrivals(i) == before[i] + 1;
        let ok = cpus::wait(|| (1..cpus::number()).all(come)) && arrivals(0) == before[0];
        checks.check("sgi_all_but_self", ok);
    } else {
        checks.skip("sgi_all_but_self", ONE_VCPU);
    }

    let before = me.arrivals(14);
    let pending = {
        let _masked = Masked::new();
        cpus::send(0, 14);
        cpus::wait(cpu::interrupt_pending) && me.arrivals(14) == before
    };
    cpu::isb();
    checks.check("sgi_masked", pending && cpus::wait(|| me.arrivals(14) == before + 1));

    gic::set_priority_mask(0x80); // SGIs have 0xa0
    cpus::send(0, 14);
    pause(NOT_COMING);
    let held = me.arrivals(14) == before + 1;
    gic::set_priority_mask(0xf0);
    checks.check("sgi_below_priority_mask", held && cpus::wait(|| me.arrivals(14) == before + 2));

    let Some(frame) = cpus::redistributor() else { return };
    frame.write32(gic::GICR_ICENABLER0, 1 << 14);
    cpus::send(0, 14);
    pause(NOT_COMING);
    let held = me.arrivals(14) == before + 2;
    frame.write32(gic::GICR_ISENABLER0, 1 << 14);
    checks.check("sgi_disabled_stays_pending", held && cpus::wait(|| me.arrivals(14) == before + 3));

    // A target that is nobody: nothing happens.
    gic::send_sgi(gic::sgi_value(0x00_00fe_fd0c, 14));
    pause(NOT_COMING);
    checks.check("sgi_to_nobody", (0..cpus::number()).all(|i| i != 0 || me.arrivals(14) == before + 3));
}

/// The worst lateness of the timer in ticks; `u64::MAX`: early or never.
static LATEST: AtomicU64 = AtomicU64::new(0);

/// One CPU's timer, now spinning, now waiting.
fn time() {
    let me = cpus::this();
    let intid = machine().timer;
    for round in 0..20u64 {
        let before = me.arrivals(intid);
        let due = cpu::counter() + ticks(50_000 + 40_000 * round, cpu::frequency());
        cpu::arm_timer(due);
        let mut come = true;
        if round % 2 == 0 {
            come = cpus::wait(|| me.arrivals(intid) != before);
        } else {
            loop {
                let _masked = Masked::new();
                if me.arrivals(intid) != before {
                    break;
                }
                cpu::wait_for_interrupt();
            }
        }
        let late = if come { me.arrived(intid).checked_sub(due) } else { None };
        LATEST.fetch_max(late.unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

fn timer(checks: &mut Checks) {
    cpus::run_everywhere(time);
    let latest = LATEST.load(Ordering::Relaxed);
    let hz = cpu::frequency();
    let late = nanoseconds(latest, hz);
    checks.note("timer_all_vcpus", latest < 20 * hz, format_args!("latest {late} ns"));

    let me = cpus::this();
    let intid = machine().timer;
    let before = me.arrivals(intid);
    cpu::arm_timer(cpu::counter() - 1);
    checks.check("timer_in_the_past", cpus::wait(|| me.arrivals(intid) == before + 1));

    cpu::arm_timer_masked(cpu::counter());
    let expired = cpus::wait(cpu::timer_expired);
    pause(NOT_COMING);
    let held = me.arrivals(intid) == before + 1;
    cpu::arm_timer(cpu::counter());
    let come = cpus::wait(|| me.arrivals(intid) == before + 2);
    pause(NOT_COMING);
    // The handler switches the timer off: once is enough.
    let once = me.arrivals(intid) == before + 2;
    checks.note(
        "timer_masked",
        expired && held && come && once,
        format_args!("{expired} {held} {come} {once}"),
    );

    // A level: asserted, then taken back before it is taken.
    {
        let _masked = Masked::new();
        cpu::arm_timer(cpu::counter());
        let pending = cpus::wait(cpu::interrupt_pending);
        cpu::stop_timer();
        checks.check("timer_pending_while_masked", pending);
    }
    pause(NOT_COMING);
}

fn registers(checks: &mut Checks) {
    let gicd = gic::distributor();
    let pidr2 = gicd.read32(gic::GICD_PIDR2);
    checks.note("gicd_is_v3", (pidr2 >> 4) & 0xf >= 3, format_args!("{pidr2:#x}"));

    let priority = gic::GICD_IPRIORITYR + SPI as usize;
    gicd.write32(priority, 0xa0a0_a0a0);
    gicd.write8(priority + 1, 0x50);
    let whole = gicd.read32(priority);
    let byte = gicd.read8(priority + 1);
    let ok = whole == 0xa0a0_50a0 && byte == 0x50;
    checks.note("gicd_priority_bytes", ok, format_args!("{whole:#x} {byte:#x}"));
    gicd.write8(priority + 1, 0xa0);

    let route = gic::GICD_IROUTER + 8 * SPI as usize;
    let me = cpus::this().affinity.load(Ordering::Relaxed);
    let other = cpus::get(cpus::number() - 1).affinity.load(Ordering::Relaxed);
    gicd.write64(route, me);
    let first = gicd.read64(route) == me;
    gicd.write32(route, other as u32);
    gicd.write32(route + 4, (other >> 32) as u32);
    let halves = u64::from(gicd.read32(route)) | (u64::from(gicd.read32(route + 4)) << 32);
    let ok = first && halves == other && gicd.read64(route) == other;
    checks.note("gicd_route_halves", ok, format_args!("{halves:#x}"));
    gicd.write64(route, me);

    let config = gic::GICD_ICFGR + 4 * (SPI as usize / 16);
    let shift = 2 * (SPI % 16);
    let old = gicd.read32(config);
    gicd.write32(config, old | (2 << shift));
    let edge = gicd.read32(config) >> shift & 2 == 2;
    gicd.write32(config, old & !(2 << shift));
    let level = gicd.read32(config) >> shift & 2 == 0;
    checks.check("gicd_trigger", edge && level);

    let enable = gic::GICD_ISENABLER + 4 * (SPI as usize / 32);
    gicd.write32(enable, 1 << (SPI % 32));
    let on = gicd.read32(enable) & (1 << (SPI % 32)) != 0;
    gicd.write32(gic::GICD_ICENABLER + 4 * (SPI as usize / 32), 1 << (SPI % 32));
    let off = gicd.read32(enable) & (1 << (SPI % 32)) == 0;
    checks.check("gicd_enable_and_disable", on && off);

    if let Some(frame) = cpus::redistributor() {
        let typer = frame.read64(gic::GICR_TYPER);
        let halves =
            u64::from(frame.read32(gic::GICR_TYPER)) | (u64::from(frame.read32(gic::GICR_TYPER + 4)) << 32);
        checks.note("gicr_type_halves", typer == halves, format_args!("{typer:#x} {halves:#x}"));
        let priority = gic::GICR_IPRIORITYR + 12;
        frame.write8(priority + 3, 0x30); // SGI 15
        let ok = frame.read32(priority) >> 24 == 0x30;
        frame.write8(priority + 3, 0xa0);
        checks.check("gicr_priority_bytes", ok);
    }
}

/// Makes an SPI edge-triggered, enabled and routed to a CPU.
fn prepare(intid: u32, cpu: usize) {
    let gicd = gic::distributor();
    let n = intid as usize;
    let config = gicd.read32(gic::GICD_ICFGR + 4 * (n / 16));
    gicd.write32(gic::GICD_ICFGR + 4 * (n / 16), config | (2 << (2 * (n % 16))));
    let group = gicd.read32(gic::GICD_IGROUPR + 4 * (n / 32));
    gicd.write32(gic::GICD_IGROUPR + 4 * (n / 32), group | (1 << (n % 32)));
    gicd.write8(gic::GICD_IPRIORITYR + n, 0xa0);
    gicd.write64(gic::GICD_IROUTER + 8 * n, cpus::get(cpu).affinity.load(Ordering::Relaxed));
    gicd.write32(gic::GICD_ISENABLER + 4 * (n / 32), 1 << (n % 32));
}

fn pend(intid: u32) {
    gic::distributor().write32(gic::GICD_ISPENDR + 4 * (intid as usize / 32), 1 << (intid % 32));
}

fn disable(intid: u32) {
    gic::distributor().write32(gic::GICD_ICENABLER + 4 * (intid as usize / 32), 1 << (intid % 32));
}

fn spis(checks: &mut Checks) {
    let mut ok = true;
    for target in 0..cpus::number() {
        let before = cpus::get(target).arrivals(SPI);
        prepare(SPI, target);
        pend(SPI);
        ok &= cpus::wait(|| cpus::get(target).arrivals(SPI) == before + 1);
    }
    disable(SPI);
    checks.check("spi_routed_to_each_vcpu", ok);

    let before = cpus::this().arrivals(SPI);
    prepare(SPI, 0);
    disable(SPI);
    pend(SPI);
    pause(NOT_COMING);
    let held = cpus::this().arrivals(SPI) == before;
    let clear = gic::GICD_ICPENDR + 4 * (SPI as usize / 32);
    let pending = gic::distributor().read32(clear) & (1 << (SPI % 32)) != 0;
    gic::distributor().write32(clear, 1 << (SPI % 32));
    prepare(SPI, 0);
    pause(NOT_COMING);
    let gone = cpus::this().arrivals(SPI) == before;
    disable(SPI);
    checks.note("spi_pending_cleared", held && pending && gone, format_args!("{held} {pending} {gone}"));
}

/// More at once than there are list registers: each comes once.
fn flood(checks: &mut Checks) {
    let me = cpus::this();
    let all = || (FIRST_SGI..16).chain(SPI..SPI_END);
    let mut before = [0; SPI_END as usize];
    for intid in all() {
        before[intid as usize] = me.arrivals(intid);
    }
    {
        let _masked = Masked::new();
        for intid in SPI..SPI_END {
            prepare(intid, 0);
            pend(intid);
        }
        for intid in FIRST_SGI..16 {
            cpus::send(0, intid);
        }
        pause(NOT_COMING);
    }
    let come = |intid: u32| me.arrivals(intid) == before[intid as usize] + 1;
    let ok = cpus::wait(|| all().all(come));
    pause(NOT_COMING);
    let still = all().all(come);
    for intid in SPI..SPI_END {
        disable(intid);
    }
    let missing = all().filter(|intid| !come(*intid)).count();
    checks.note("more_interrupts_than_list_registers", ok && still, format_args!("{missing} wrong"));
}
