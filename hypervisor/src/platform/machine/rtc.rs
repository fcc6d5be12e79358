//! The machine's real-time clock (Linux' binding `arm,pl031`).

use crate::memory::address::{Pa, PaRange};
use crate::platform::fdt::Tree;

/// Length of a PL031's registers in bytes (Arm DDI 0224).
const SIZE: u64 = 0x1000;

/// The registers of the first enabled PL031; `None` where there is none that can be found, which is no error: guests' clocks begin
/// at 0 then.
pub(super) fn pl031(tree: Tree<'_>) -> Option<PaRange> {
    let mut clocks = tree.compatible_with(&["arm,pl031"]).filter(|node| node.is_enabled());
    let reg = clocks.find_map(|node| node.reg(0).ok().flatten().filter(|reg| reg.size >= SIZE))?;
    PaRange::new(Pa(reg.address), SIZE).to_pages()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::fdt::model::{Model, texts, wide};
    use crate::platform::machine::Machine;
    use crate::platform::machine::tests::{BASE, virt};

    #[test]
    fn a_real_time_clock_is_taken_where_there_is_one() {
        let found = |change: &dyn Fn(&mut Model)| {
            let mut model = virt(1);
            change(&mut model);
            let blob = model.blob();
            Machine::from_dtb(&blob, BASE).expect("a machine").rtc
        };
        assert_eq!(found(&|_| {}), None);
        let clock = |model: &mut Model| {
            model.set("pl031@9010000", "compatible", texts(&["arm,pl031", "arm,primecell"]));
            model.set("pl031@9010000", "reg", wide(&[0x901_0000, 0x1000]));
        };
        assert_eq!(found(&clock), Some(PaRange::new(Pa(0x901_0000), 0x1000)));
        let disabled = |model: &mut Model| {
            clock(model);
            model.set("pl031@9010000", "status", texts(&["disabled"]));
        };
        assert_eq!(found(&disabled), None);
        let short = |model: &mut Model| {
            clock(model);
            model.set("pl031@9010000", "reg", wide(&[0x901_0000, 0x10]));
        };
        assert_eq!(found(&short), None);
    }
}
