//! The scheduler as it stands, on simulated CPUs (`arch/fake`): whatever the order in which they run, no vCPU is forgotten.

use crate::arch::fake::machine::Outcome;
use crate::arch::fake::program::{Do, Trap};
use crate::exit::syndrome::class;
use crate::platform::options::DebugFault;
use crate::system::fake::{Plan, Ran, Setup, free, pinned, run};
use crate::vm::layout::GICR_BASE;
use crate::vmid::{Config, Flush, Policy};
use proptest::prelude::*;

/// The run has ended well.
fn ends(ran: &Ran, what: &str) {
    assert_eq!(ran.outcome, Outcome::Off, "{what}: {:#?}", ran.states());
    ran.adds_up();
}

fn repeat(times: u64, round: impl Fn(u64) -> Vec<Do>) -> Vec<Do> {
    (1..=times).flat_map(round).collect()
}

/// vCPU `index` of `count` passes an SGI on from one to the next, `rounds` times, and does `noise` each time; vCPU 0 begins and ends.
fn ring(index: u64, count: u64, rounds: u64, noise: impl Fn(u64) -> Vec<Do>) -> Vec<Do> {
    const TOKEN: u32 = 7;
    let pass = Do::Send(TOKEN, 1 << ((index + 1) % count));
    if index != 0 {
        return repeat(rounds, |n| [noise(n), vec![Do::Await(TOKEN, n), pass.clone()]].concat());
    }
    let start = (1..count).map(Do::cpu_on).collect();
    let round = |n| [noise(n), vec![pass.clone(), Do::Await(TOKEN, n)]].concat();
    [start, repeat(rounds, round)].concat()
}

/// The same, but vCPU 0 starts the others anew in each round, who go off when they have sent their token.
fn relay(index: u64, count: u64, rounds: u64, noise: impl Fn(u64) -> Vec<Do>) -> Vec<Do> {
    if index != 0 {
        return repeat(rounds, |n| [noise(n), vec![Do::Send(index as u32, 1), Do::cpu_off()]].concat());
    }
    let start = |other: u64| vec![Do::cpu_on(other), Do::RetryUntil(0)];
    let wait = |n| (1..count).map(move |other| Do::Await(other as u32, n));
    // AFFINITY_INFO: off, before the VM may be reset.
    let off = |other: u64| vec![Do::hvc([0xc400_0004, other, 0, 0]), Do::RetryUntil(1)];
    let round = |n| [noise(n), (1..count).flat_map(start).collect(), wait(n).collect()].concat();
    [repeat(rounds, round), (1..count).flat_map(off).collect()].concat()
}

/// A VM's `lives`, with a reset between two, and its end.
fn lives(index: u64, lives: u64, one: Vec<Do>) -> Vec<Do> {
    let end = |n| match (index, n == lives) {
        (0, true) => Do::system_off(),
        (0, false) => Do::system_reset(),
        _ => Do::UntilReset,
    };
    repeat(lives, |n| [vec![Do::OpenGic], one.clone(), vec![end(n)]].concat())
}

#[test]
fn two_vcpus_of_one_cpu_take_turns() {
    let other = vec![Do::Await(1, 1), Do::Send(2, 0b01)];
    let first = vec![Do::cpu_on(1), Do::Expect(0), Do::Send(1, 0b10), Do::SpinUntil(2, 1), Do::system_off()];
    ends(&run(Setup::new(1), vec![vec![free(first), free(other)]]), "one CPU");
}

#[test]
fn trap_11_a_stolen_sleeper_leaves_its_cpu_with_kicks_for_pinned_ones() {
    const ROUNDS: u64 = 8;
    const SLICE: u64 = 400;
    for seed in 1..60u64 {
        let ticks = |n: u64, most: u64| (n * 7919 + seed * 104_729) % most;
        // vCPU 0 spins on CPU 0 until vCPU 1, pinned there too, has answered vCPU 2: a sleeper that CPU 0 wakes into its own queue, while
        // CPU 1 is busy, and that CPU 1 steals.
        let round = |n| vec![Do::Sleep(ticks(n, 900)), Do::SpinUntil(5, n), Do::Send(6, 0b100)];
        let busy = [vec![Do::cpu_on(1), Do::cpu_on(2)], repeat(ROUNDS, round), vec![Do::system_off()]];
        let waiter = repeat(ROUNDS, |n| vec![Do::Await(3, n), Do::Send(5, 0b001)]);
        let sleeper = |n| {
            let naps = [Do::Sleep(ticks(n, 700)), Do::Spin(50), Do::Sleep(ticks(n, 300))];
            [naps.to_vec(), vec![Do::Send(3, 0b010), Do::Await(6, n)]].concat()
        };
        let other = |n| vec![Do::Spin(ticks(n, 800)), Do::Sleep(ticks(n, 500))];
        let vms = vec![
            vec![pinned(0, busy.concat()), pinned(0, waiter), free(repeat(ROUNDS, sleeper))],
            vec![pinned(1, [repeat(2 * ROUNDS, other), vec![Do::system_off()]].concat())],
        ];
        let setup = Setup { seed, slice: SLICE, limit: 200_000, ..Setup::new(2) };
        ends(&run(setup, vms), &format!("seed {seed}"));
    }
}

#[test]
fn trap_34_a_guest_that_spins_with_interrupts_masked_is_preempted() {
    let deaf = vec![Do::Mask(true), Do::SpinUntilDone(1), Do::system_off()];
    let other = vec![Do::Spin(5000), Do::system_off()];
    let ran = run(Setup::new(1), vec![vec![pinned(0, deaf)], vec![pinned(0, other)]]);
    ends(&ran, "both on one CPU");
}

#[test]
fn a_guest_that_loops_over_wfi_with_an_interrupt_masked_lets_others_run() {
    let wfi = Do::Trap(Trap { syndrome: u64::from(class::WFX) << 26 | 1 << 25, x: [0; 4], address: 0 });
    let parked =
        [vec![Do::Mask(true), Do::Send(1, 1)], vec![wfi; 20], vec![Do::SpinUntilDone(1), Do::system_off()]];
    let other = vec![Do::Spin(100), Do::system_off()];
    // No slice ends before the other one must have run.
    let setup = Setup { slice: 1 << 40, ..Setup::new(1) };
    ends(&run(setup, vec![vec![pinned(0, parked.concat())], vec![pinned(0, other)]]), "both on one CPU");
}

#[test]
fn trap_20_of_two_that_start_a_third_one_succeeds() {
    for seed in 1..40 {
        let racer =
            |reply| vec![Do::SpinUntil(1, 1), Do::Trap(start_third()), Do::Note, Do::Send(reply, 0b001)];
        let first = [
            vec![Do::cpu_on(1), Do::Spin(seed * 7 % 60), Do::Send(1, 0b011)],
            racer(2),
            vec![Do::Await(2, 1), Do::Await(3, 1), Do::Await(4, 1), Do::system_off()],
        ];
        let third = vec![Do::Send(4, 0b001)];
        let vms = vec![vec![pinned(0, first.concat()), pinned(1, racer(3)), free(third)]];
        let ran = run(Setup { seed, ..Setup::new(3) }, vms);
        ends(&ran, &format!("seed {seed}"));
        let mut answers = [ran.noted(0)[0] as i64, ran.noted(1)[0] as i64];
        answers.sort_unstable();
        // SUCCESS for one; ALREADY_ON or ON_PENDING for the other.
        assert!(matches!(answers, [-5 | -4, 0]), "seed {seed}: {answers:?}");
    }
}

/// CPU_ON of vCPU 2.
fn start_third() -> Trap {
    let Do::Trap(trap) = Do::cpu_on(2) else { unreachable!() };
    trap
}

#[test]
fn trap_20_two_that_start_each_other_are_on_already() {
    for seed in 1..20 {
        let call = |other| vec![Do::SpinUntil(1, 1), Do::cpu_on(other), Do::Expect(-4i64 as u64)];
        let first = [
            vec![Do::cpu_on(1), Do::Spin(200), Do::Send(1, 0b11)],
            call(1),
            vec![Do::Await(2, 1), Do::system_off()],
        ];
        let second = [call(0), vec![Do::Send(2, 0b01)]];
        let vms = vec![vec![pinned(0, first.concat()), pinned(1, second.concat())]];
        ends(&run(Setup { seed, ..Setup::new(2) }, vms), &format!("seed {seed}"));
    }
}

#[test]
fn trap_21_vcpu_0_goes_off_and_vcpu_1_ends_the_vm() {
    for seed in 1..20 {
        let first = vec![Do::cpu_on(1), Do::cpu_off()];
        let second = vec![Do::Spin(200), Do::system_off()];
        let vms = vec![vec![free(first), free(second)], vec![free(vec![Do::Spin(3000), Do::system_off()])]];
        ends(&run(Setup { seed, ..Setup::new(2) }, vms), &format!("seed {seed}"));
    }
}

#[test]
fn trap_21_a_vm_ends_whatever_its_vcpus_are_doing() {
    for seed in 1..160 {
        // vCPU 1 is woken, and the VM ends while its CPU takes it up; from then on it makes no exit of its own.
        let first =
            vec![Do::cpu_on(1), Do::Spin(150), Do::Send(1, 0b10), Do::Spin(seed % 40), Do::system_off()];
        let second = vec![Do::Await(1, 1), Do::Mask(true), Do::Spin(u64::MAX / 2)];
        let vms = vec![vec![pinned(0, first), pinned(1, second)]];
        ends(&run(Setup { seed, limit: 20_000, ..Setup::new(2) }, vms), &format!("seed {seed}"));
    }
}

#[test]
fn trap_22_a_timer_that_waits_in_memory_is_gone_after_a_reset() {
    // vCPU 1 is put away with its timer armed, when vCPU 0 resets the VM.
    let first = vec![Do::cpu_on(1), Do::Spin(1000), Do::system_reset()];
    let again = vec![Do::OpenGic, Do::cpu_on(1), Do::Await(1, 1), Do::system_off()];
    let second = vec![Do::Arm { ticks: 3000, masked: false }, Do::UntilReset];
    let later = vec![Do::Spin(9000), Do::ExpectArrivals(27, 0), Do::Send(1, 0b01)];
    let vms = vec![vec![pinned(0, [first, again].concat()), pinned(0, [second, later].concat())]];
    ends(&run(Setup { slice: 200, ..Setup::new(1) }, vms), "one CPU");
}

#[test]
fn trap_21_a_vm_is_reset_while_others_run() {
    const RESETS: u64 = 5;
    for seed in 1..10 {
        let first = repeat(RESETS, |_| {
            vec![Do::OpenGic, Do::cpu_on(1), Do::Expect(0), Do::Await(1, 1), Do::system_reset()]
        });
        let second = repeat(RESETS, |_| vec![Do::Send(1, 0b01), Do::UntilReset]);
        // Its ring goes on undisturbed.
        let vms = vec![
            vec![free([first, vec![Do::system_off()]].concat()), free(second)],
            vec![free(lives(0, 1, ring(0, 2, 12, |_| vec![]))), free(ring(1, 2, 12, |_| vec![]))],
        ];
        ends(&run(Setup { seed, ..Setup::new(2) }, vms), &format!("seed {seed}"));
    }
}

#[test]
fn trap_12_a_timer_whose_interrupt_is_disabled_wakes_nobody_until_it_is_enabled() {
    /// ISV, SAS of 32 bits, WnR, a translation fault at level 3.
    const STORE: u64 = 1 << 24 | 2 << 22 | 1 << 6 | 0x07;
    const SGI_FRAME: u64 = GICR_BASE.0 + 0x1_0000;
    const TIMERS: u64 = 1 << 27 | 1 << 30;
    for seed in 1..10 {
        let sleeper = vec![
            Do::cpu_on(1),
            // GICR_ICENABLER0; then its virtual timer and its physical one, both in the past.
            Do::access(STORE, SGI_FRAME + 0x180, TIMERS),
            Do::Arm { ticks: 0, masked: false },
            Do::sysreg(3 << 20 | 2 << 17 | 3 << 14 | 14 << 10 | 2 << 1, 1),
            Do::sysreg(3 << 20 | 1 << 17 | 3 << 14 | 14 << 10 | 2 << 1, 1),
            Do::Await(27, 1),
            Do::system_off(),
        ];
        // Its sibling enables the virtual one, GICR_ISENABLER0 of vCPU 0, a long time after.
        let sibling = vec![Do::Spin(20_000), Do::access(STORE, SGI_FRAME + 0x100, 1 << 27)];
        let vms = vec![vec![pinned(0, sleeper), pinned(0, sibling)]];
        let ran = run(Setup { seed, slice: 500, ..Setup::new(1) }, vms);
        ends(&ran, &format!("seed {seed}"));
        let runs = ran.system.vms()[0].vcpus()[0].stats.schedule_ins.get();
        assert!(runs < 10, "seed {seed}: it was scheduled {runs} times");
    }
}

/// Something that a vCPU does beside passing the token on.
fn noise() -> impl Strategy<Value = Vec<Do>> {
    prop_oneof![
        Just(vec![]),
        (1..300u64).prop_map(|ticks| vec![Do::Spin(ticks)]),
        (1..600u64).prop_map(|ticks| vec![Do::Sleep(ticks)]),
        (1..300u64).prop_map(|ticks| vec![Do::Mask(true), Do::Spin(ticks), Do::Mask(false)]),
        // The timer expires while it is not taken: perhaps the vCPU is switched away with it.
        (1..900u64).prop_map(|ticks| {
            vec![Do::Mask(true), Do::Arm { ticks: 30, masked: false }, Do::Spin(ticks), Do::Mask(false)]
        }),
        (1..500u64).prop_map(|ticks| {
            let arm = [vec![Do::Mark(30)], Do::arm_physical(ticks).to_vec()].concat();
            [arm, vec![Do::AwaitMarked(30)]].concat()
        }),
        Just(vec![Do::Fp, Do::Spin(100), Do::Fp]),
        Just(vec![Do::Pauth, Do::Spin(100), Do::Pauth]),
        (1..300u64).prop_map(|ticks| vec![Do::Arm { ticks, masked: true }, Do::Spin(ticks + 100)]),
        // YIELD.
        Just(vec![Do::hvc([0xc600_0001, 0, 0, 0]), Do::Expect(0)]),
    ]
}

/// Where a vCPU is pinned, and its noises.
type Member = (Option<u16>, Vec<Vec<Do>>);

fn vcpu(cpus: u16) -> impl Strategy<Value = Member> {
    (prop::option::weighted(0.4, 0..cpus), prop::collection::vec(noise(), 1..6))
}

fn vms(cpus: u16) -> impl Strategy<Value = Vec<Vec<Member>>> {
    prop::collection::vec(prop::collection::vec(vcpu(cpus), 1..4), 1..5)
}

fn machine() -> impl Strategy<Value = (u16, Vec<Vec<Member>>)> {
    (1..4u16).prop_flat_map(|cpus| (Just(cpus), vms(cpus)))
}

/// Four VMs on two CPUs with three VMIDs.
fn crowd(policy: Policy, fault: Option<DebugFault>) -> Ran {
    let vm = || {
        let turn = |_| vec![Do::Spin(300), Do::hvc([0xc600_0001, 0, 0, 0]), Do::Expect(0)];
        vec![free([repeat(20, turn), vec![Do::system_off()]].concat())]
    };
    let setup = Setup { usable: 3, vmid: Config::from(policy), fault, ..Setup::new(2) };
    run(setup, (0..4).map(|_| vm()).collect())
}

#[test]
fn the_ghost_tlb_notices_that_invalidations_are_left_out() {
    for &policy in Policy::ALL {
        ends(&crowd(policy, None), policy.name());
        let run = std::panic::catch_unwind(|| _ = crowd(policy, Some(DebugFault::NoTlbi)));
        let payload = run.expect_err(policy.name());
        let text = payload.downcast_ref::<String>().expect("a message");
        for part in ["ghost TLB: VM ", "VMID ", "has left entries", "vm-", policy.name(), "generation "] {
            assert!(text.contains(part), "{policy}: {part} is not in: {text}");
        }
    }
}

/// A policy and a way to flush, and how often a vCPU may be passed over.
fn vmid() -> impl Strategy<Value = (Config, u8)> {
    let policies = prop::sample::select(Policy::ALL);
    (policies, prop::sample::select(Flush::ALL), 0..4u8).prop_map(|(policy, flush, vmid_affinity)| {
        let flush = if policy == Policy::Merged { Flush::Broadcast } else { flush };
        (Config { flush: Some(flush), ..Config::from(policy) }, vmid_affinity)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever VMs do, on however many CPUs, with hardly more VMIDs than CPUs: each comes to its end, and at each instruction its VMID, tables,
    /// registers and TLB entries are its own.
    #[test]
    fn trap_11_12_no_vcpu_is_forgotten_whatever_the_schedule(
        (cpus, vms) in machine(),
        times in 1..4u64,
        (vmid, vmid_affinity) in vmid(),
        seed in 1..u64::MAX,
        slice in 100..2000u64,
    ) {
        let plan = |vm: usize, index: usize, count: usize, (pin, noise): &Member| {
            let noise = |n: u64| noise[n as usize % noise.len()].clone();
            let (index, count) = (index as u64, count as u64);
            let one = if vm.is_multiple_of(2) { ring(index, count, 5, noise) } else { relay(index, count, 5, noise) };
            let program = lives(index, times, one);
            match pin {
                Some(cpu) => pinned(*cpu, program),
                None => free(program),
            }
        };
        let all = |(n, vm): (usize, &Vec<Member>)| -> Vec<Plan> {
            vm.iter().enumerate().map(|(index, vcpu)| plan(n, index, vm.len(), vcpu)).collect()
        };
        let usable = u32::from(cpus) + 1;
        let setup = Setup { seed, slice, usable, vmid, vmid_affinity, ..Setup::new(usize::from(cpus)) };
        ends(&run(setup, vms.iter().enumerate().map(all).collect()), &format!("random VMs, {vmid:?}"));
    }
}
