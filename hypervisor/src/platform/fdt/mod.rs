//! A reader of flattened device trees that checks before it believes.
//!
//! Two things reach the hypervisor in this format (Devicetree specification 0.4, chapter 5): the machine's
//! description and the bundle of guests, a FIT. Both come from outside, so a [`Blob`] exists only once the
//! whole structure has been walked and found sound ([`check`]); after that nothing here fails or panics,
//! whatever the blob holds. Nothing allocates, and all reads are of bytes or aligned words, because the
//! machine's tree is read with the MMU off, where an unaligned access faults.
//!
//! It is own code, against the design's wish for a crate, because both crates that were looked at refuse
//! trees that real boards have: `fdt` 0.1.5 panics on a valid tree with a NOP between properties (firmware
//! patches them in), sees only the first `/memory` node and reads no three-cell `interrupts`;
//! `dtoolkit` 0.4.1 rejects names over 31 characters, which Linux' own trees use
//! (`rockchip,system-power-controller`). A checker that makes either safe is as long as this reader.

mod check;
mod fault;
#[cfg(test)]
pub(crate) mod model;
mod node;
mod reg;
#[cfg(test)]
mod tests;

pub use check::{FdtError, HEADER_LEN, MAX_DEPTH, blob_size};
pub use fault::{Fault, Place, Value};
pub use node::{Cells, Children, Node, Property, Texts};
pub use reg::{Reg, Regs};

use check::Token;

/// A checked blob: a tree, and what comes with it.
#[derive(Clone, Copy, Debug)]
pub struct Blob<'a> {
    tree: Tree<'a>,
    /// The reservation map without its terminator: pairs of 64-bit address and size.
    reservations: &'a [u8],
    /// `totalsize` of the header in bytes.
    size: usize,
}

impl<'a> Blob<'a> {
    /// Checks the blob that `bytes` begins with; bytes after its `totalsize` are ignored.
    ///
    /// # Errors
    /// What is wrong with the header, the reservation map or the structure, and where.
    pub fn new(bytes: &'a [u8]) -> Result<Blob<'a>, FdtError> {
        check::check(bytes)
    }

    /// Length of the blob in bytes, as its header says.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The nodes.
    pub fn tree(&self) -> Tree<'a> {
        self.tree
    }

    /// The entries of the reservation map (specification, 5.3): address and size in bytes.
    pub fn reservations(&self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let words = self.reservations.as_chunks::<8>().0;
        let entries = words.as_chunks::<2>().0.iter();
        entries.map(|[address, size]| (u64::from_be_bytes(*address), u64::from_be_bytes(*size)))
    }
}

/// The nodes of a checked blob: each node and property in it can be read without an error.
#[derive(Clone, Copy, Debug)]
pub struct Tree<'a> {
    /// The structure block: tokens, names, values.
    structure: &'a [u8],
    /// The strings block: the properties' names.
    strings: &'a [u8],
}

impl<'a> Tree<'a> {
    /// The root node.
    pub fn root(self) -> Node<'a> {
        Node::at(self, 0).unwrap_or(Node::empty(self))
    }

    /// All nodes, each before its children, beginning with the root.
    pub fn nodes(self) -> impl Iterator<Item = Node<'a>> {
        let mut offset = 0;
        core::iter::from_fn(move || {
            loop {
                let start = offset;
                match Token::read(self.structure, &mut offset)? {
                    Token::Begin { .. } => return Node::at(self, start),
                    Token::Finish => return None,
                    Token::End | Token::Property { .. } | Token::Nop => {}
                }
            }
        })
    }

    /// The node that an absolute `path` names; a component without its `@address` finds the first that fits.
    pub fn node(self, path: &str) -> Option<Node<'a>> {
        let path = path.strip_prefix('/')?;
        let mut node = self.root();
        for component in path.split('/').filter(|component| !component.is_empty()) {
            node = node.child(component)?;
        }
        Some(node)
    }

    /// The nodes that have property `name`, and its value: one pass over the tree, which finds a node by a
    /// value much quicker than asking each node.
    pub fn with_property(self, name: &str) -> impl Iterator<Item = (Node<'a>, &'a [u8])> {
        let mut offset = 0;
        let mut node = None;
        core::iter::from_fn(move || {
            loop {
                let start = offset;
                match Token::read(self.structure, &mut offset)? {
                    Token::Begin { .. } => node = Some((start, offset)),
                    Token::Property { name: at, value } if self.is_name(at, name) => {
                        let (start, body) = node?;
                        return Some((Node::new(self, start, body)?, value));
                    }
                    Token::Finish => return None,
                    Token::End | Token::Property { .. } | Token::Nop => {}
                }
            }
        })
    }

    /// The nodes whose `compatible` lists one of `models` (specification, 2.3.1).
    pub fn compatible_with(self, models: &[&str]) -> impl Iterator<Item = Node<'a>> {
        let fits = |value| Texts::new(value).any(|text| models.contains(&text));
        self.with_property("compatible").filter_map(move |(node, value)| fits(value).then_some(node))
    }

    /// The node whose `phandle` is `phandle` (specification, 2.3.3).
    pub fn with_phandle(self, phandle: u32) -> Option<Node<'a>> {
        let find = |name| self.with_property(name).find(|(_, value)| *value == phandle.to_be_bytes());
        find("phandle").or_else(|| find("linux,phandle")).map(|(node, _)| node)
    }

    /// Whether the property name at `offset` of the strings block is `name`.
    fn is_name(self, offset: usize, name: &str) -> bool {
        let rest = self.strings.get(offset..).unwrap_or(&[]);
        rest.get(name.len()) == Some(&0) && rest.starts_with(name.as_bytes())
    }
}
