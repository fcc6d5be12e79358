//! What a long run shows of itself on standard error: bars on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often a plain task says that it still runs.
const PLAIN_PERIOD: Duration = Duration::from_secs(30);

/// The display of a run with a known number of steps.
pub struct Progress {
    bars: MultiProgress,
    total: ProgressBar,
    plain: bool,
}

/// One step that is under way.
pub struct Step {
    bar: ProgressBar,
    total: ProgressBar,
    name: String,
    plain: bool,
    started: Instant,
    said: Instant,
}

impl Progress {
    /// Starts a display.
    pub fn new(steps: usize) -> Self {
        let plain = !std::io::stderr().is_terminal();
        let target = if plain { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bars = MultiProgress::with_draw_target(target);
        let total = bars.add(ProgressBar::new(steps as u64));
        total.set_style(style("{elapsed_precise} [{bar:30}] {pos}/{len} {msg}"));
        total.enable_steady_tick(Duration::from_millis(500));
        Self { bars, total, plain }
    }

    /// Starts a step.
    pub fn step(&self, name: impl Into<String>) -> Step {
        let name = name.into();
        let bar = self.bars.add(ProgressBar::new_spinner());
        bar.set_style(style("         {spinner} {prefix}: {wide_msg}"));
        bar.set_prefix(name.clone());
        bar.enable_steady_tick(Duration::from_millis(200));
        if self.plain {
            eprintln!("{name}: starts");
        }
        let now = Instant::now();
        Step { bar, total: self.total.clone(), name, plain: self.plain, started: now, said: now }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // On errors, too: the error message comes below an empty display.
        let _ = self.bars.clear();
    }
}

impl Step {
    /// Shows how far the step is.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if self.plain && self.said.elapsed() >= PLAIN_PERIOD {
            eprintln!("{}: {} s: {text}", self.name, self.started.elapsed().as_secs());
            self.said = Instant::now();
        }
        self.bar.set_message(text);
    }

    /// Ends the step.
    pub fn done(self) {
        if self.plain {
            eprintln!("{}: done in {:.1} s", self.name, self.started.elapsed().as_secs_f64());
        }
        self.bar.finish_and_clear();
        self.total.inc(1);
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
