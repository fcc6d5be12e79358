//! Ticks to nanoseconds.

/// How fast the system counter runs (CNTFRQ_EL0, Arm ARM D12.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TickRate {
    hz: u64,
}

impl TickRate {
    /// A counter of `hz` ticks a second. A frequency of 0 (firmware that did not set CNTFRQ_EL0) is taken for 1 GHz,
    /// so that a report comes out whose nanoseconds are ticks.
    pub const fn new(hz: u64) -> Self {
        TickRate { hz: if hz == 0 { 1_000_000_000 } else { hz } }
    }

    /// Ticks a second, never 0.
    pub const fn hz(self) -> u64 {
        self.hz
    }

    /// `ticks` in nanoseconds, rounded down. Exact for every `ticks` whose result fits 64 bits (584 years) at
    /// frequencies up to 18 GHz; larger results become `u64::MAX`.
    pub const fn to_ns(self, ticks: u64) -> u64 {
        const NS: u64 = 1_000_000_000;
        let seconds = ticks / self.hz;
        let rest = ticks % self.hz;
        // Below 18.4 GHz the product fits. Above it precision goes before correctness of the magnitude does.
        let fraction = match rest.checked_mul(NS) {
            Some(product) => product / self.hz,
            None => rest / (self.hz / NS),
        };
        seconds.saturating_mul(NS).saturating_add(fraction)
    }

    /// `us` microseconds in ticks, rounded up; saturates.
    pub const fn from_us(self, us: u64) -> u64 {
        let seconds = us / 1_000_000;
        let rest = (us % 1_000_000).saturating_mul(self.hz).div_ceil(1_000_000);
        seconds.saturating_mul(self.hz).saturating_add(rest)
    }
}
