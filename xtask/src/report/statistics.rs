//! Statistics over trials: mean, standard error, quantiles, intervals, outliers, and whether two differ.

/// Resamples of a bootstrap: enough for the ends of a 95 % interval to stay within a percent of its width from seed to seed.
const RESAMPLES: usize = 10_000;
/// Trials that a bootstrap needs; two can't say how they spread.
const LEAST: usize = 3;

/// The values of one quantity over the trials.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// One for each trial.
    pub values: Vec<f64>,
}

impl Sample {
    /// A sample of these values.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Self {
        Self { values: values.into_iter().collect() }
    }

    /// The arithmetic mean; 0 without values.
    pub fn mean(&self) -> f64 {
        if self.values.is_empty() { 0.0 } else { self.values.iter().sum::<f64>() / self.values.len() as f64 }
    }

    /// The standard deviation of the sample (divided by n - 1); `None` for fewer than two values.
    pub fn deviation(&self) -> Option<f64> {
        if self.values.len() < 2 {
            return None;
        }
        let mean = self.mean();
        let squares: f64 = self.values.iter().map(|value| (value - mean).powi(2)).sum();
        Some((squares / (self.values.len() - 1) as f64).sqrt())
    }

    /// The standard error of the mean; `None` for fewer than two values.
    pub fn standard_error(&self) -> Option<f64> {
        Some(self.deviation()? / (self.values.len() as f64).sqrt())
    }

    /// The standard deviation in % of the mean; `None` for fewer than two values or a mean of 0.
    pub fn relative_deviation(&self) -> Option<f64> {
        let mean = self.mean();
        if mean == 0.0 { None } else { Some(100.0 * self.deviation()? / mean.abs()) }
    }

    /// How much this one's mean differs from another's, in % of the other's; `None` if the other's is 0.
    pub fn difference(&self, first: &Self) -> Option<f64> {
        let base = first.mean();
        if base == 0.0 { None } else { Some(100.0 * (self.mean() - base) / base) }
    }

    /// The standard error in % of the mean; `None` for fewer than two values or a mean of 0.
    pub fn relative_error(&self) -> Option<f64> {
        let mean = self.mean();
        if mean == 0.0 { None } else { Some(100.0 * self.standard_error()? / mean.abs()) }
    }

    /// The value below which this part of all lies, `0.0..=1.0`; between two values as far as the part says. `None` without values.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        quantile(&sorted(self.values.clone()), part)
    }

    /// The values that lie more than one and a half times the distance of the quartiles outside of them (Tukey's fences).
    pub fn outliers(&self) -> Vec<f64> {
        let (Some(low), Some(high)) = (self.quantile(0.25), self.quantile(0.75)) else { return Vec::new() };
        let reach = 1.5 * (high - low);
        let outside = |value: &f64| *value < low - reach || *value > high + reach;
        self.values.iter().copied().filter(outside).collect()
    }

    /// The 95 % interval of the mean by bootstrap (percentiles of resampled means); `None` for fewer than three values. The same values
    /// have the same interval.
    pub fn interval(&self) -> Option<(f64, f64)> {
        bootstrap(&[self], |means| Some(means[0]))
    }

    /// Whether the 95 % intervals of both means overlap, or, where there are too few trials for these, mean ± standard error; `None`
    /// where one has no spread at all to be told.
    pub fn overlaps(&self, other: &Self) -> Option<bool> {
        let ends = |sample: &Self| {
            sample.interval().or_else(|| {
                let (mean, error) = (sample.mean(), sample.standard_error()?);
                Some((mean - error, mean + error))
            })
        };
        let ((low, high), (other_low, other_high)) = (ends(self)?, ends(other)?);
        Some(low <= other_high && other_low <= high)
    }
}

/// The share of time that goes into something, from three runs: `with` it, `without` it, and a `floor` that has nothing of the load:
/// ((a - f) - (b - f)) / (a - f).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// Of the means, in %.
    pub percent: f64,
    /// Its 95 % interval by bootstrap, in %; `None` where a run has fewer than three trials.
    pub interval: Option<(f64, f64)>,
}

/// The share; `None` where the run with all of it isn't above the floor.
pub fn share(floor: &Sample, with: &Sample, without: &Sample) -> Option<Share> {
    let of = |floor: f64, with: f64, without: f64| {
        (with > floor).then(|| 100.0 * ((with - floor) - (without - floor)) / (with - floor))
    };
    let percent = of(floor.mean(), with.mean(), without.mean())?;
    let interval = bootstrap(&[floor, with, without], |means| of(means[0], means[1], means[2]));
    Some(Share { percent, interval })
}

/// The 2.5 % and 97.5 % quantiles of what `of` makes of resampled means; `None` if a sample has fewer than three values, or `of` makes
/// nothing of one.
fn bootstrap(samples: &[&Sample], of: impl Fn(&[f64]) -> Option<f64>) -> Option<(f64, f64)> {
    if samples.iter().any(|sample| sample.values.len() < LEAST) {
        return None;
    }
    // The seed of the sequence is arbitrary, and fixed so that a table repeats.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut below = |count: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The upper bits of a linear congruential sequence are the random ones (Knuth, volume 2, 3.6).
        (((state >> 33) as usize) * count) >> 31
    };
    let resampled = |_| {
        let means: Vec<f64> = samples
            .iter()
            .map(|sample| {
                let count = sample.values.len();
                (0..count).map(|_| sample.values[below(count)]).sum::<f64>() / count as f64
            })
            .collect();
        of(&means)
    };
    let values = sorted((0..RESAMPLES).map(resampled).collect::<Option<_>>()?);
    Some((quantile(&values, 0.025)?, quantile(&values, 0.975)?))
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let at = part * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

#[cfg(test)]
#[path = "statistics_tests.rs"]
mod tests;
