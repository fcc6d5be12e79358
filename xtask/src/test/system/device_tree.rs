//! A device tree with one more entry in its memory reservation map.

use anyhow::{Context, Result, ensure};

/// Where the header (Devicetree specification, 5.2) has these, in bytes: sizes and offsets of the parts.
const TOTAL_SIZE: usize = 4;
const STRUCTURE: usize = 8;
const STRINGS: usize = 12;
const RESERVATIONS: usize = 16;
/// Bytes of an entry of the reservation map.
const ENTRY: u32 = 16;

fn word(tree: &[u8], at: usize) -> Result<u32> {
    let bytes = tree.get(at..at + 4).context("a device tree without a whole header")?;
    Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// Reserves `size` bytes from `address` on, in front of what `tree` reserves already.
///
/// # Errors
/// It is no device tree, or its parts are not in the usual order.
pub fn reserve(tree: &[u8], address: u64, size: u64) -> Result<Vec<u8>> {
    ensure!(word(tree, 0)? == 0xd00d_feed, "no device tree");
    let map = word(tree, RESERVATIONS)?;
    let mut changed = tree.to_vec();
    for at in [TOTAL_SIZE, STRUCTURE, STRINGS] {
        let value = word(tree, at)?;
        ensure!(value > map, "the reservation map is not in front of the tree");
        changed[at..at + 4].copy_from_slice(&(value + ENTRY).to_be_bytes());
    }
    ensure!(map as usize <= tree.len(), "a reservation map outside of the device tree");
    let entry = [address.to_be_bytes(), size.to_be_bytes()].concat();
    changed.splice(map as usize..map as usize, entry);
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use odometer::platform::fdt::Blob;

    use super::*;

    #[test]
    fn one_more_range_is_reserved_and_the_tree_stays_as_it_is() {
        let mut writer = vm_fdt::FdtWriter::new().expect("a writer");
        let root = writer.begin_node("").expect("a node");
        writer.property_string("model", "test").expect("a property");
        writer.end_node(root).expect("its end");
        let before = writer.finish().expect("a tree");
        let after = reserve(&before, 0x4000_0000, 0x1000).expect("a device tree");
        assert_eq!(after.len(), before.len() + 16);
        let blob = Blob::new(&after).expect("a sound one");
        assert_eq!(blob.reservations().collect::<Vec<_>>(), [(0x4000_0000, 0x1000)]);
        assert_eq!(blob.tree().root().property("model"), Some(&b"test\0"[..]));
        assert!(reserve(&[0; 40], 0, 0).is_err() && reserve(&before[..8], 0, 0).is_err());
    }
}
