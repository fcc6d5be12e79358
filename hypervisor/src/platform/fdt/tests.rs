//! The reader against trees that it should read, and against everything else.

use proptest::prelude::*;

use super::model::{Model, cells, texts, wide};
use super::*;

/// Reads a whole blob into a model.
fn read(blob: &[u8]) -> Model {
    fn model(node: Node<'_>) -> Model {
        Model {
            name: node.name().into(),
            properties: node.properties().map(|p| (p.name.into(), p.value.into())).collect(),
            children: node.children().map(model).collect(),
        }
    }
    model(Blob::new(blob).unwrap().tree().root())
}

fn bus() -> Model {
    let device = Model::new("device@1000")
        .with("reg", cells(&[0x1000, 0x100, 0x2000, 0x200]))
        .with("compatible", texts(&["a,b", "c,d"]))
        .with("phandle", cells(&[7]));
    let bus = Model::new("bus@80000000")
        .with("#address-cells", cells(&[1]))
        .with("#size-cells", cells(&[1]))
        .with("ranges", cells(&[0, 1, 0x8000_0000, 0x1800]));
    Model::new("")
        .with("#address-cells", cells(&[2]))
        .with("#size-cells", cells(&[2]))
        .child(Model::new("chosen").with("bootargs", texts(&["quiet"])))
        .child(bus.child(device))
        .child(Model::new("empty"))
}

/// The header word `index` of `blob` replaced.
fn with_field(mut blob: Vec<u8>, index: usize, value: u32) -> Vec<u8> {
    blob[index * 4..index * 4 + 4].copy_from_slice(&value.to_be_bytes());
    blob
}

/// A blob of hand-made blocks.
fn assemble(structure: &[u32], strings: &[u8]) -> Vec<u8> {
    let structure = cells(structure);
    let strings_at = 56 + structure.len();
    let size = strings_at + strings.len();
    let header = [0xd00d_feed, size, 56, strings_at, 40, 17, 16, 0, strings.len(), structure.len()];
    let mut blob = cells(&header.map(|field| field as u32));
    blob.extend([0; 16]);
    blob.extend(structure);
    blob.extend(strings);
    blob
}

#[test]
fn everything_that_was_written_is_read() {
    assert_eq!(read(&bus().blob()), bus());
}

#[test]
fn nodes_are_found_by_path_phandle_and_parent() {
    let blob = bus().blob();
    let tree = Blob::new(&blob).unwrap().tree();
    let device = tree.node("/bus@80000000/device@1000").unwrap();
    assert_eq!(tree.node("/bus/device"), Some(device));
    assert_eq!(tree.with_phandle(7), Some(device));
    assert_eq!(device.path().to_string(), "/bus@80000000/device@1000");
    assert_eq!(device.parent().unwrap().path().to_string(), "/bus@80000000");
    assert_eq!(device.parent().unwrap().parent(), Some(tree.root()));
    assert_eq!(tree.root().parent(), None);
    assert_eq!(tree.root().path().to_string(), "/");
    assert_eq!(tree.node("/bus/nothing"), None);
    assert_eq!(tree.node("bus"), None);
    assert_eq!(tree.node("/"), Some(tree.root()));
    let names: Vec<&str> = tree.nodes().map(Node::name).collect();
    assert_eq!(names, ["", "chosen", "bus@80000000", "device@1000", "empty"]);
}

#[test]
fn children_end_with_their_parent() {
    let blob = bus().blob();
    let mut children = Blob::new(&blob).unwrap().tree().node("/bus").unwrap().children();
    assert_eq!(children.next().map(Node::name), Some("device@1000"));
    assert_eq!(children.next(), None);
    assert_eq!(children.next(), None);
}

#[test]
fn values_are_typed_and_a_wrong_length_is_named() {
    let model = Model::new("")
        .with("one", cells(&[5]))
        .with("two", wide(&[1 << 40]))
        .with("odd", [1, 2, 3])
        .with("text", texts(&["a text"]))
        .with("list", texts(&["a", "", "b"]))
        .with("open", *b"no NUL")
        .with("none", []);
    let blob = model.blob();
    let root = Blob::new(&blob).unwrap().tree().root();
    assert_eq!((root.u32("one"), root.u32("missing")), (Ok(Some(5)), Ok(None)));
    assert_eq!((root.u64("one"), root.u64("two")), (Ok(Some(5)), Ok(Some(1 << 40))));
    assert_eq!(
        root.u32("odd").unwrap_err().to_string(),
        "/: odd has 3 bytes: a number of one cell (4 bytes) is needed"
    );
    assert!(root.u32("two").is_err() && root.u64("odd").is_err() && root.cells("odd").is_err());
    assert_eq!(root.text("text"), Ok(Some("a text")));
    assert!(root.text("open").is_err() && root.text("list").is_err() && root.text("none").is_err());
    assert_eq!(root.texts("list").collect::<Vec<_>>(), ["a", "", "b"]);
    assert_eq!(root.texts("open").collect::<Vec<_>>(), ["no NUL"]);
    assert_eq!(root.texts("none").count(), 0);
    assert!(root.has("none") && !root.has("non") && !root.has("nonee"));
}

#[test]
fn addresses_go_through_the_buses_above() {
    let blob = bus().blob();
    let device = Blob::new(&blob).unwrap().tree().node("/bus/device").unwrap();
    assert_eq!(device.reg(0), Ok(Some(Reg { address: 0x1_8000_1000, size: 0x100 })));
    assert!(device.reg(1).unwrap_err().to_string().contains("ranges"), "outside the bus' window");
    assert_eq!(device.reg(2), Ok(None));
}

#[test]
fn a_bus_without_ranges_hides_its_devices_and_empty_ranges_change_nothing() {
    let mut model = bus();
    model.set("bus@80000000", "ranges", []);
    let blob = model.blob();
    let device = |blob| Blob::new(blob).unwrap().tree().node("/bus/device").unwrap();
    assert_eq!(device(&blob).reg(1), Ok(Some(Reg { address: 0x2000, size: 0x200 })));
    model.unset("bus@80000000", "ranges");
    let blob = model.blob();
    assert_eq!(device(&blob).reg(0).unwrap_err().value, Value::Missing);
}

#[test]
fn wrong_cell_counts_and_regions_that_wrap_are_errors() {
    let mut model = bus();
    for (cell_count, value) in [("#address-cells", 0), ("#address-cells", 3), ("#size-cells", 3)] {
        let mut model = model.clone();
        model.set("bus@80000000", cell_count, cells(&[value]));
        let blob = model.blob();
        let fault = Blob::new(&blob).unwrap().tree().node("/bus/device").unwrap().reg(0).unwrap_err();
        assert_eq!((fault.property, fault.value), (cell_count, Value::Number(value.into())));
    }
    model.set("empty", "reg", wide(&[u64::MAX, 2]));
    let blob = model.blob();
    let fault = Blob::new(&blob).unwrap().tree().node("/empty").unwrap().reg(0).unwrap_err();
    assert_eq!(fault.to_string(), "/empty: reg = 0xffffffffffffffff: the region reaches beyond 64 bits");
}

#[test]
fn nops_between_anything_are_skipped() {
    // A root with NOPs before and after its property, and a child with one inside.
    let structure = [1, 0, 4, 3, 4, 0, 0xabcd, 4, 4, 1, 0x6100_0000, 4, 2, 4, 1, 0x6200_0000, 2, 2, 4, 9];
    let blob = assemble(&structure, b"p\0");
    let expected = Model::new("").with("p", cells(&[0xabcd])).child(Model::new("a")).child(Model::new("b"));
    assert_eq!(read(&blob), expected);
}

#[test]
fn names_that_the_specification_calls_too_long_are_read() {
    let model = Model::new("").with("rockchip,system-power-contr", []);
    let mut blob = model.blob();
    assert_eq!(read(&blob), model);
    let structure = [1, 0, 3, 0, 0, 2, 9];
    blob = assemble(&structure, b"rockchip,system-power-controller\0");
    assert_eq!(read(&blob).properties[0].0, "rockchip,system-power-controller");
}

#[test]
fn the_reservation_map_is_read_from_its_first_entry() {
    let map = [(0x8000_0000, 0x1000), (0x9000_0000, 0x20_0000)];
    let blob = bus().blob_with_reservations(&map);
    assert_eq!(Blob::new(&blob).unwrap().reservations().collect::<Vec<_>>(), map);
    let blob = bus().blob();
    assert_eq!(Blob::new(&blob).unwrap().reservations().count(), 0);
}

#[test]
fn what_is_no_blob_is_refused_with_a_reason() {
    let blob = bus().blob();
    let refusal = |blob: &[u8]| Blob::new(blob).unwrap_err();
    assert_eq!(refusal(&[]), FdtError::Truncated { have: 0, need: HEADER_LEN });
    assert_eq!(refusal(b"070701 cpio"), FdtError::Magic { found: 0x3037_3037 });
    assert!(matches!(refusal(&blob[..HEADER_LEN - 1]), FdtError::Truncated { .. }));
    assert!(matches!(refusal(&blob[..blob.len() - 1]), FdtError::Truncated { .. }));
    assert!(matches!(refusal(&with_field(blob.clone(), 1, 12)), FdtError::Header { field: "totalsize", .. }));
    assert!(matches!(refusal(&with_field(blob.clone(), 5, 16)), FdtError::Version { version: 16, .. }));
    assert!(matches!(refusal(&with_field(blob.clone(), 6, 18)), FdtError::Version { compatible: 18, .. }));
    for (index, field) in [(2, "off_dt_struct"), (3, "off_dt_strings"), (4, "off_mem_rsvmap")] {
        for value in [u32::MAX, blob.len() as u32 + 8] {
            let error = refusal(&with_field(blob.clone(), index, value));
            assert_eq!(error, FdtError::Header { field, value }, "{error}");
        }
    }
    assert!(matches!(refusal(&with_field(blob.clone(), 2, 57)), FdtError::Header { .. }), "misaligned");
    assert!(matches!(refusal(&with_field(blob.clone(), 9, u32::MAX)), FdtError::Header { .. }));
    let mut unterminated = blob.clone();
    unterminated[40..].fill(1);
    assert!(matches!(refusal(&unterminated), FdtError::Reservations { offset: 40 }));
}

#[test]
fn a_malformed_structure_is_refused_where_it_is() {
    let cases: [(&[u32], &str); 12] = [
        (&[], "cuts off"),
        (&[9], "end of the tree"),
        (&[1, 0, 2], "cuts off"),
        (&[1, 0, 9], "end of the tree inside"),
        (&[2, 9], "never began"),
        (&[1, 0, 2, 1, 0, 2, 9], "first and only"),
        (&[4, 1, 0, 2, 9], "first and only"),
        (&[1, 0, 1, 0, 2, 2, 9], "without a name"),
        (&[1, 0, 3, u32::MAX, 0, 2, 9], "cuts off"),
        (&[1, 0, 3, 0, 77, 2, 9], "strings block"),
        (&[1, 0, 1, 0x6100_0000, 2, 3, 0, 0, 2, 9], "after a child"),
        (&[1, 0, 1, 0x2f00_0000, 2, 2, 9], "plain ASCII"),
    ];
    for (structure, what) in cases {
        let message = Blob::new(&assemble(structure, b"p\0")).unwrap_err().to_string();
        assert!(message.contains(what), "{structure:?}: {message}");
    }
    let deep: Vec<u32> = [1, 0].into_iter().chain([1, 0x6100_0000].repeat(MAX_DEPTH)).collect();
    assert!(Blob::new(&assemble(&deep, b"")).unwrap_err().to_string().contains("deeper"));
}

/// Calls everything that there is on every node.
fn exercise(blob: &[u8]) {
    let Ok(blob) = Blob::new(blob) else { return };
    assert!(blob.reservations().count() <= blob.size());
    for node in blob.tree().nodes() {
        let _ = (node.path().to_string(), node.base_name(), node.parent(), node.is_enabled(), node.phandle());
        let _ = (node.text("bootargs").map_err(|fault| fault.to_string()), node.u64("reg"), node.u32("reg"));
        let _ = node.is_compatible("a,b");
        for index in 0..3 {
            let _ = node.reg(index).map_err(|fault| fault.to_string());
        }
        assert!(node.children().all(|child| child.parent() == Some(node)));
        for property in node.properties() {
            assert!(node.has(property.name));
        }
    }
}

/// A random tree with names that `vm-fdt` writes.
fn model() -> impl Strategy<Value = Model> {
    let value = || prop::collection::vec(any::<u8>(), 0..20);
    let properties = prop::collection::btree_map("[a-z#,-]{1,20}", value(), 0..5);
    let leaf = properties
        .prop_map(|properties| Model { properties: properties.into_iter().collect(), ..Model::default() });
    let tree = leaf.prop_recursive(5, 40, 4, |inner| {
        let children = prop::collection::btree_map("[a-z]{1,9}(@[0-9a-f]{1,8})?", inner.clone(), 0..4);
        (inner, children).prop_map(|(mut node, children)| {
            node.children = children.into_iter().map(|(name, child)| Model { name, ..child }).collect();
            node
        })
    });
    tree.prop_map(|root| Model { name: String::new(), ..root })
}

proptest! {
    #[test]
    fn any_tree_survives_writing_and_reading(model in model()) {
        prop_assert_eq!(read(&model.blob()), model);
    }

    #[test]
    fn bytes_changed_at_random_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut blob = bus().blob();
        for (at, value) in changes {
            let at = at.index(blob.len());
            blob[at] = value;
        }
        exercise(&blob);
    }

    #[test]
    fn words_changed_at_random_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![0u32..16, any::<u32>()]), 1..4),
    ) {
        let mut blob = bus().blob();
        for (at, value) in changes {
            let at = at.index(blob.len() / 4) * 4;
            blob[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        exercise(&blob);
    }

    #[test]
    fn a_blob_cut_anywhere_never_panics(at in any::<prop::sample::Index>()) {
        let blob = bus().blob();
        exercise(&blob[..at.index(blob.len())]);
        // With a header that fits the shorter length, the cut is inside the structure.
        let length = at.index(blob.len()).max(HEADER_LEN);
        exercise(&with_field(blob[..length].to_vec(), 1, length as u32));
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        exercise(&bytes);
        let blob = assemble(&[], &bytes);
        exercise(&with_field(blob, 9, (bytes.len() & !3) as u32));
    }

    #[test]
    fn random_tokens_never_panic(tokens in prop::collection::vec(prop_oneof![0u32..10, any::<u32>()], 0..40)) {
        exercise(&assemble(&tokens, b"reg\0status\0"));
    }
}
