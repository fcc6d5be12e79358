//! Memory and what of it is reserved (Devicetree specification 0.4, 3.4, 3.5 and 5.3).

use arrayvec::ArrayVec;

use super::{MAX_BANKS, MAX_RESERVED, Reserved};
use crate::memory::address::{Pa, PaRange};
use crate::platform::fdt::{Blob, Fault, Node, Tree, Value};

/// Banks of memory in the order of their addresses.
pub(super) fn banks(tree: Tree<'_>) -> Result<ArrayVec<PaRange, MAX_BANKS>, Fault<'_>> {
    let mut banks = ArrayVec::<PaRange, MAX_BANKS>::new();
    let is_memory =
        |node: &Node<'_>| node.texts("device_type").any(|kind| kind == "memory") && node.is_enabled();
    for node in tree.root().children().filter(is_memory) {
        for index in 0.. {
            let Some(reg) = node.reg(index)? else { break };
            let bank = PaRange::from(reg);
            if bank.size == 0 {
                continue;
            }
            let fault = |remedy| Err(Fault::new(node, "reg", Value::Hex(bank.base.0), remedy));
            if banks.iter().any(|other| overlap(bank, *other)) {
                return fault("overlaps another bank of memory; each address must be in one bank");
            }
            let at = banks.iter().position(|other| bank.base.0 < other.base.0).unwrap_or(banks.len());
            if banks.try_insert(at, bank).is_err() {
                return fault("more than 32 banks of memory");
            }
        }
    }
    if banks.is_empty() {
        let remedy = "a node with device_type = \"memory\" and a non-empty reg is needed";
        return Err(Fault::of("/memory", "", Value::Missing, remedy));
    }
    Ok(banks)
}

/// Whether the two have a byte in common.
fn overlap(a: PaRange, b: PaRange) -> bool {
    a.contains(b.base) || b.contains(a.base)
}

/// Reserved ranges: first the reservation map's, then the static ones of `parent`, `/reserved-memory`.
///
/// A node there without `reg` asks an operating system to find room for it: nothing to keep away from.
pub(super) fn reserved<'a>(
    blob: Blob<'a>,
    parent: Option<Node<'a>>,
) -> Result<ArrayVec<Reserved, MAX_RESERVED>, Fault<'a>> {
    const FULL: &str = "more than 96 reserved ranges";
    let mut reserved = ArrayVec::new();
    for (address, size) in blob.reservations().filter(|&(_, size)| size > 0) {
        let fault = |remedy| Fault::of("/memreserve/", "", Value::Hex(address), remedy);
        if address.checked_add(size).is_none() {
            return Err(fault("the range reaches beyond 64 bits"));
        }
        let region = PaRange::new(Pa(address), size);
        reserved.try_push(Reserved { region, no_map: false }).map_err(|_| fault(FULL))?;
    }
    let Some(parent) = parent else { return Ok(reserved) };
    for node in parent.children().filter(|node| node.is_enabled()) {
        for index in 0.. {
            let Some(reg) = node.reg(index)? else { break };
            let entry = Reserved { region: reg.into(), no_map: node.has("no-map") };
            if reg.size > 0 && reserved.try_push(entry).is_err() {
                return Err(Fault::new(node, "reg", Value::Hex(reg.address), FULL));
            }
        }
    }
    Ok(reserved)
}
