//! Options that are one of several words.

/// Whether events are recorded, and where they go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tracing {
    /// They aren't.
    #[default]
    Off,
    /// They stay in memory, for a debugger or an emulator's monitor.
    On,
    /// At the end they are written to the console, too.
    Serial,
}

impl Tracing {
    pub(super) fn parse(value: &str) -> Option<Tracing> {
        match value {
            "off" => Some(Tracing::Off),
            "on" => Some(Tracing::On),
            "serial" => Some(Tracing::Serial),
            _ => None,
        }
    }
}

/// What becomes of a VM whose guest does nothing more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Afterwards {
    /// It is ended, and counts as failed.
    #[default]
    End,
    /// It starts again, as after SYSTEM_RESET.
    Restart,
}

impl Afterwards {
    pub(super) fn parse(value: &str) -> Option<Afterwards> {
        match value {
            "end" => Some(Afterwards::End),
            "restart" => Some(Afterwards::Restart),
            _ => None,
        }
    }
}

/// A fault of EL2's own, to try out how it is reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DebugFault {
    /// A panic.
    Panic,
    /// A read where nothing is mapped.
    Null,
    /// A write to instructions.
    WriteCode,
    /// A jump to data.
    RunData,
    /// A stack that overflows into its guard page.
    Overflow,
    /// Another configuration of EL2 on the CPUs that the first one starts.
    Differ,
    /// The VMID allocator asks for TLB invalidations, and there are none.
    NoTlbi,
}

impl DebugFault {
    pub(super) fn parse(value: &str) -> Option<DebugFault> {
        Some(match value {
            "panic" => DebugFault::Panic,
            "null" => DebugFault::Null,
            "write-code" => DebugFault::WriteCode,
            "differ" => DebugFault::Differ,
            "run-data" => DebugFault::RunData,
            "overflow" => DebugFault::Overflow,
            "no-tlbi" => DebugFault::NoTlbi,
            _ => return None,
        })
    }
}
