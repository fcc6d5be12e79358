//! The bundle, as the loader put it into memory.

use super::BootError;
use super::early::Early;
use crate::bundle::Bundle;
use crate::memory::el2_map::Kind;
use crate::platform::machine::Machine;

/// Maps and checks the bundle.
///
/// # Errors
///
/// There is none, or it is malformed.
pub fn read(machine: &Machine<'_>, early: &mut Early) -> Result<Bundle<'static>, BootError> {
    let range = machine.initrd.filter(|range| range.size != 0).ok_or(BootError::NoBundle)?;
    early.map(range, Kind::ReadOnly).map_err(super::memory::MemoryError::Map)?;
    // SAFETY: the range that /chosen names, mapped; it is reserved for as long as the machine runs, and nobody writes to it.
    let bytes = unsafe {
        let start = core::ptr::with_exposed_provenance::<u8>(range.base.0 as usize);
        core::slice::from_raw_parts(start, range.size as usize)
    };
    let bundle = Bundle::parse(bytes)?;
    if bundle.configs().next().is_none() {
        return Err(BootError::NoVms);
    }
    Ok(bundle)
}
