//! An image of a bundle: a node of `/images` and its data.

use crate::platform::fdt::{Fault, HEADER_LEN, Node, Value, blob_size};

/// An image that goes into a guest's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Image<'a> {
    /// Its bytes.
    pub data: &'a [u8],
    /// Where it goes, in guest physical addresses, if it says so.
    pub load: Option<u64>,
    /// Where execution begins, in guest physical addresses, if it says so.
    pub entry: Option<u64>,
}

impl<'a> Image<'a> {
    /// The image that `node` describes, of the bundle in `data` whose tree has `tree_size` bytes.
    pub(super) fn read(node: Node<'a>, data: &'a [u8], tree_size: usize) -> Result<Image<'a>, Fault<'a>> {
        let expect = |property, wanted: &str, remedy| match node.text(property)? {
            Some(value) if value != wanted => Err(Fault::new(node, property, Value::Text(value), remedy)),
            _ => Ok(()),
        };
        expect("compression", "none", "it must be unpacked on the host, where `cargo xtask` does it")?;
        expect("arch", "arm64", "only \"arm64\" can run here")?;
        // Tools that want an address where there is none to give are given 0, which is never RAM.
        let address = |property| node.u64(property).map(|address| address.filter(|address| *address != 0));
        Ok(Image { data: bytes(node, data, tree_size)?, load: address("load")?, entry: address("entry")? })
    }

    /// The image that property `property` of `config` names; `None` where there is no such property.
    /// It must be of type `kind`, where it says of which it is.
    pub(super) fn named(
        config: Node<'a>,
        property: &'static str,
        kind: &str,
        images: Node<'a>,
        data: &'a [u8],
    ) -> Result<Option<Image<'a>>, Fault<'a>> {
        let Some(name) = config.text(property)? else { return Ok(None) };
        let Some(node) = images.children().find(|image| image.name() == name) else {
            return Err(Fault::new(config, property, Value::Text(name), "/images has no image of this name"));
        };
        match node.text("type")? {
            Some(other) if other != kind => {
                let remedy = "\"kernel\", \"ramdisk\", \"flat_dt\" or \"filesystem\" is needed, as the configuration uses it";
                return Err(Fault::new(node, "type", Value::Text(other), remedy));
            }
            _ => {}
        }
        // The bundle's own header has been checked.
        let tree_size = blob_size(data.get(..HEADER_LEN).unwrap_or(&[])).unwrap_or(data.len());
        Image::read(node, data, tree_size).map(Some)
    }
}

/// The bytes of an image: external to the tree or inline.
fn bytes<'a>(node: Node<'a>, data: &'a [u8], tree_size: usize) -> Result<&'a [u8], Fault<'a>> {
    if let Some(inline) = node.property("data") {
        return match inline.is_empty() {
            true => Err(Fault::new(node, "data", Value::Bytes(0), "the image is empty")),
            false => Ok(inline),
        };
    }
    let (property, base, offset) = match (node.u64("data-position")?, node.u64("data-offset")?) {
        (Some(position), None) => ("data-position", 0, position),
        (None, Some(offset)) => ("data-offset", tree_size.next_multiple_of(4) as u64, offset),
        (Some(_), Some(_)) => {
            let remedy = "it can't be beside data-position";
            return Err(Fault::new(node, "data-offset", Value::Present, remedy));
        }
        (None, None) => {
            let remedy = "inline data, or data-size with data-offset or data-position, is needed";
            return Err(Fault::new(node, "data", Value::Missing, remedy));
        }
    };
    let Some(size) = node.u64("data-size")? else {
        return Err(Fault::new(node, "data-size", Value::Missing, "the image's length in bytes is needed"));
    };
    if size == 0 {
        return Err(Fault::new(node, "data-size", Value::Number(0), "the image is empty"));
    }
    let start = base.checked_add(offset).and_then(|start| usize::try_from(start).ok());
    let end = start.and_then(|start| start.checked_add(usize::try_from(size).ok()?));
    match (start, end) {
        (Some(start), Some(_)) if start < tree_size => {
            let remedy = "the data would be inside the tree; it must be behind it";
            Err(Fault::new(node, property, Value::Hex(offset), remedy))
        }
        (Some(start), Some(end)) if end <= data.len() => Ok(data.get(start..end).unwrap_or(&[])),
        _ => {
            let remedy = "the data reaches beyond the bundle's end: is the file cut short?";
            Err(Fault::new(node, property, Value::Hex(offset), remedy))
        }
    }
}
