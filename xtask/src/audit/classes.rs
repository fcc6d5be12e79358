//! Classes of exits: what a CPU says of them, and which of Odometer's reasons come of it.

use crate::report::records::{Reason, Tally};

/// A class of exits.
#[derive(Debug, Clone, Copy)]
pub struct Class {
    /// What it is.
    pub what: &'static str,
    /// The auditor's event.
    pub event: &'static str,
    /// The reasons, for people.
    pub shown: &'static str,
    /// The reasons.
    reasons: &'static [&'static str],
}

/// All of them: each of Odometer's reasons is in one.
pub const CLASSES: [Class; 8] = [
    Class { what: "HVC", event: "exit_hvc", shown: "hvc", reasons: &["hvc"] },
    Class { what: "SMC", event: "exit_smc", shown: "smc", reasons: &["smc"] },
    Class { what: "WFI and WFE", event: "exit_wfx", shown: "wfi", reasons: &["wfi"] },
    Class { what: "FP", event: "exit_fp", shown: "fp", reasons: &["fp"] },
    Class {
        what: "other instructions",
        event: "exit_instruction",
        shown: "sysreg, id_register, sgi, debug, undefined, other",
        reasons: &["sysreg", "id_register", "sgi", "debug", "undefined", "other"],
    },
    Class {
        what: "aborts",
        event: "exit_abort",
        shown: "mmio_*, memory, stage2_abort",
        reasons: &[
            "mmio_gicd",
            "mmio_gicr",
            "mmio_uart",
            "mmio_rtc",
            "mmio_virtio",
            "mmio_virtio_console",
            "mmio_virtio_blk",
            "mmio_virtio_net",
            "mmio_unknown",
            "memory",
            "stage2_abort",
        ],
    },
    Class {
        what: "interrupts",
        event: "exit_interrupt",
        shown: "irq_*",
        reasons: &["irq_timer", "irq_kick", "irq_slice", "irq_maintenance", "irq_device", "irq_other"],
    },
    Class { what: "SErrors", event: "exit_serror", shown: "serror", reasons: &["serror"] },
];

impl Class {
    /// How often a CPU had such exits.
    pub fn count(&self, cpu: &Tally) -> u64 {
        self.of(cpu).map(|reason| reason.count).sum()
    }

    /// How much time they took on it, by Odometer's clock.
    pub fn time_ns(&self, cpu: &Tally) -> u64 {
        self.of(cpu).map(|reason| reason.time_ns).sum()
    }

    fn of<'a>(&self, cpu: &'a Tally) -> impl Iterator<Item = &'a Reason> {
        self.reasons.iter().filter_map(|reason| cpu.exits.by_reason.get(*reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_in_one_class() {
        let mut classified: Vec<&str> = CLASSES.iter().flat_map(|class| class.reasons).copied().collect();
        let mut reasons: Vec<&str> =
            odometer::stats::Reason::ALL.iter().map(|reason| reason.name()).collect();
        classified.sort_unstable();
        reasons.sort_unstable();
        assert_eq!(classified, reasons);
    }
}
