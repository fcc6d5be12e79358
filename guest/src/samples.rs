//! Samples of a duration in counter ticks, and their conversion to time.

use crate::json::Tenths;

/// Count, sum, least and greatest of some durations in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Samples {
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

impl Samples {
    /// None yet.
    pub const fn new() -> Samples {
        Samples { count: 0, sum: 0, min: u64::MAX, max: 0 }
    }

    /// Adds one duration in ticks.
    pub fn add(&mut self, ticks: u64) {
        self.count += 1;
        self.sum = self.sum.saturating_add(ticks);
        self.min = self.min.min(ticks);
        self.max = self.max.max(ticks);
    }

    /// How many there are.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The least in ticks; 0 when there is none.
    pub const fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// The greatest in ticks; 0 when there is none.
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// The mean in tenths of a nanosecond, at `hz` ticks a second.
    pub fn mean(&self, hz: u64) -> Tenths {
        mean(self.sum, self.count, hz)
    }
}

impl Default for Samples {
    fn default() -> Self {
        Samples::new()
    }
}

/// `ticks` for `n` operations as tenths of a nanosecond for one, rounded.
pub fn mean(ticks: u64, n: u64, hz: u64) -> Tenths {
    let divisor = u128::from(hz.max(1)) * u128::from(n.max(1));
    let tenths = (u128::from(ticks) * 10_000_000_000 + divisor / 2) / divisor;
    Tenths(u64::try_from(tenths).unwrap_or(u64::MAX))
}

/// Ticks as nanoseconds at `hz` ticks a second, rounded.
pub fn nanoseconds(ticks: u64, hz: u64) -> u64 {
    let hz = u128::from(hz.max(1));
    u64::try_from((u128::from(ticks) * 1_000_000_000 + hz / 2) / hz).unwrap_or(u64::MAX)
}

/// Nanoseconds as ticks at `hz` ticks a second, rounded up.
pub fn ticks(nanoseconds: u64, hz: u64) -> u64 {
    u64::try_from((u128::from(nanoseconds) * u128::from(hz)).div_ceil(1_000_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_keep_sum_least_and_greatest() {
        let mut samples = Samples::new();
        assert_eq!((samples.min(), samples.max(), samples.mean(1_000_000_000)), (0, 0, Tenths(0)));
        for ticks in [5, 3, 9] {
            samples.add(ticks);
        }
        assert_eq!((samples.count(), samples.min(), samples.max()), (3, 3, 9));
        assert_eq!(samples.mean(1_000_000_000), Tenths(57));
    }

    #[test]
    fn ticks_become_nanoseconds_at_usual_rates() {
        assert_eq!(nanoseconds(1, 62_500_000), 16);
        assert_eq!(nanoseconds(24_000_000, 24_000_000), 1_000_000_000);
        assert_eq!(nanoseconds(u64::MAX, 1), u64::MAX);
        assert_eq!(ticks(16, 62_500_000), 1);
        assert_eq!(ticks(1_000_000_000, 19_200_000), 19_200_000);
    }

    #[test]
    fn a_rate_of_zero_does_not_divide_by_zero() {
        assert_eq!(nanoseconds(5, 0), 5_000_000_000);
        mean(5, 0, 0);
    }
}
