//! What `/chosen` says of this boot (Devicetree specification 0.4, 3.6).

use crate::memory::address::{Pa, PaRange};
use crate::platform::fdt::{Fault, Node, Value};

/// The command line; empty where there is none.
pub(super) fn bootargs(chosen: Option<Node<'_>>) -> Result<&str, Fault<'_>> {
    Ok(chosen.map_or(Ok(None), |chosen| chosen.text("bootargs"))?.unwrap_or(""))
}

/// The initial RAM disk.
pub(super) fn initrd(chosen: Option<Node<'_>>) -> Result<Option<PaRange>, Fault<'_>> {
    let Some(chosen) = chosen else { return Ok(None) };
    match (chosen.u64("linux,initrd-start")?, chosen.u64("linux,initrd-end")?) {
        (None, None) => Ok(None),
        (Some(start), Some(end)) if start < end => Ok(Some(PaRange::new(Pa(start), end - start))),
        (Some(_), Some(end)) => {
            let remedy = "it must be above linux,initrd-start";
            Err(Fault::new(chosen, "linux,initrd-end", Value::Hex(end), remedy))
        }
        (Some(_), None) => {
            let remedy = "it is needed beside linux,initrd-start";
            Err(Fault::new(chosen, "linux,initrd-end", Value::Missing, remedy))
        }
        (None, Some(_)) => {
            let remedy = "it is needed beside linux,initrd-end";
            Err(Fault::new(chosen, "linux,initrd-start", Value::Missing, remedy))
        }
    }
}
