//! What the console needs of whoever owns the VMs.

use crate::ids::VmId;

/// Carries the level of a VM's UART interrupt to its vGIC. It may be called with the console's and the UART's lock held:
/// it must be short and call nothing of the console, logging included.
pub trait UartLine {
    /// The UART interrupt of `vm` has changed to `level`.
    fn set_level(&self, vm: VmId, level: bool);

    /// Output of `vm` has been taken: is there more that has waited for room, elsewhere than in its UART? It is put with
    /// [`Console::put_output`](super::Console::put_output) then. As [`set_level`](Self::set_level), but the UART isn't locked.
    fn has_room(&self, vm: VmId) -> bool {
        let _ = vm;
        false
    }

    /// Input has been put into the UART of `vm`: it may be fetched with [`Console::take_input`](super::Console::take_input). As [`has_room`](Self::has_room).
    fn has_input(&self, vm: VmId) {
        let _ = vm;
    }

    /// The guest of `vm` has said that its kernel has given up and does nothing more (`search.rs`). As [`has_room`](Self::has_room).
    fn has_panicked(&self, vm: VmId) {
        let _ = vm;
    }

    /// The guest of `vm` has said the words of `vm.until`. As [`has_room`](Self::has_room).
    fn has_said(&self, vm: VmId) {
        let _ = vm;
    }
}
