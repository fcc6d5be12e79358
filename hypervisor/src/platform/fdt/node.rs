//! Nodes and properties of a checked tree, and typed reads of values.

use core::fmt;

use arrayvec::ArrayVec;

use super::check::{MAX_DEPTH, Token, property_name};
use super::{Fault, Tree, Value};

/// A node. Small and cheap to copy; its parent and path are found by walking the tree again.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    tree: Tree<'a>,
    /// Offset in the structure block of the token that begins the node.
    start: u32,
    /// Offset of what follows the name.
    body: u32,
}

/// A property: its name and the bytes of its value.
#[derive(Clone, Copy, Debug)]
pub struct Property<'a> {
    /// The name.
    pub name: &'a str,
    /// The value.
    pub value: &'a [u8],
}

impl PartialEq for Node<'_> {
    /// Whether both are the same node, given that they are of the same tree.
    fn eq(&self, other: &Self) -> bool {
        self.start == other.start
    }
}

impl<'a> Node<'a> {
    /// The node that begins at `start` of the structure block.
    pub(super) fn at(tree: Tree<'a>, start: usize) -> Option<Node<'a>> {
        let mut body = start;
        match Token::read(tree.structure, &mut body)? {
            Token::Begin { .. } => Node::new(tree, start, body),
            _ => None,
        }
    }

    /// The node that begins at `start` of the structure block, and what follows its name at `body`.
    pub(super) fn new(tree: Tree<'a>, start: usize, body: usize) -> Option<Node<'a>> {
        Some(Node { tree, start: start.try_into().ok()?, body: body.try_into().ok()? })
    }

    /// A node without properties and children.
    pub(super) fn empty(tree: Tree<'a>) -> Node<'a> {
        Node { tree, start: u32::MAX, body: u32::MAX }
    }

    /// The tree that the node is in.
    pub fn tree(self) -> Tree<'a> {
        self.tree
    }

    /// The name with its `@address`; empty for the root.
    pub fn name(self) -> &'a str {
        core::str::from_utf8(self.raw_name()).unwrap_or("")
    }

    /// The name's bytes.
    fn raw_name(self) -> &'a [u8] {
        // From behind the token to what follows: up to four NULs.
        let mut name = self.tree.structure.get(self.start as usize + 4..self.body as usize).unwrap_or(&[]);
        while let Some(shorter) = name.strip_suffix(&[0]) {
            name = shorter;
        }
        name
    }

    /// The name without its `@address`.
    pub fn base_name(self) -> &'a str {
        self.name().split('@').next().unwrap_or("")
    }

    /// Whether it is the tree's root.
    pub fn is_root(self) -> bool {
        self.start == 0
    }

    /// Its properties.
    pub fn properties(self) -> impl Iterator<Item = Property<'a>> {
        self.raw_properties().filter_map(move |(name, value)| {
            let name = core::str::from_utf8(property_name(self.tree.strings, name)).ok()?;
            Some(Property { name, value })
        })
    }

    /// Its properties; a name is an offset into the strings block.
    fn raw_properties(self) -> impl Iterator<Item = (usize, &'a [u8])> {
        let mut offset = self.body as usize;
        core::iter::from_fn(move || {
            loop {
                match Token::read(self.tree.structure, &mut offset)? {
                    Token::Property { name, value } => return Some((name, value)),
                    Token::Nop => {}
                    Token::Begin { .. } | Token::End | Token::Finish => return None,
                }
            }
        })
    }

    /// The value of property `name`.
    pub fn property(self, name: &str) -> Option<&'a [u8]> {
        self.raw_properties().find_map(|(offset, value)| self.tree.is_name(offset, name).then_some(value))
    }

    /// Whether it has property `name`, with whatever value.
    pub fn has(self, name: &str) -> bool {
        self.property(name).is_some()
    }

    /// Its child nodes.
    pub fn children(self) -> Children<'a> {
        Children { tree: self.tree, offset: self.body as usize }
    }

    /// The child called `name`, or the first whose name without `@address` is `name`.
    pub fn child(self, name: &str) -> Option<Node<'a>> {
        let mut similar = None;
        for child in self.children() {
            match child.raw_name().strip_prefix(name.as_bytes()) {
                Some([]) => return Some(child),
                Some([b'@', ..]) => similar = similar.or(Some(child)),
                _ => {}
            }
        }
        similar
    }

    /// The node that it is a child of; `None` for the root.
    pub fn parent(self) -> Option<Node<'a>> {
        let start = self.ancestors().last().copied()?;
        Node::at(self.tree, start)
    }

    /// Where its ancestors begin in the structure block, the root first.
    pub(super) fn ancestors(self) -> ArrayVec<usize, MAX_DEPTH> {
        let mut ancestors = ArrayVec::new();
        let mut offset = 0;
        loop {
            let start = offset;
            if start >= self.start as usize {
                return ancestors;
            }
            match Token::read(self.tree.structure, &mut offset) {
                // The check has seen that the nesting fits.
                Some(Token::Begin { .. }) => drop(ancestors.try_push(start)),
                Some(Token::End) => drop(ancestors.pop()),
                Some(Token::Property { .. } | Token::Nop) => {}
                Some(Token::Finish) | None => return ancestors,
            }
        }
    }

    /// Something that displays the node's path.
    pub fn path(self) -> impl fmt::Display + use<'a> {
        fmt::from_fn(move |f| {
            if self.is_root() {
                return f.write_str("/");
            }
            for start in self.ancestors().into_iter().skip(1) {
                if let Some(node) = Node::at(self.tree, start) {
                    write!(f, "/{}", node.name())?;
                }
            }
            write!(f, "/{}", self.name())
        })
    }

    /// The value of property `name` as a number of one cell.
    ///
    /// # Errors
    /// It is there and has another length.
    pub fn u32(self, name: &'static str) -> Result<Option<u32>, Fault<'a>> {
        let Some(value) = self.property(name) else { return Ok(None) };
        let bytes: [u8; 4] = value.try_into().map_err(|_| {
            Fault::new(self, name, Value::Bytes(value.len()), "a number of one cell (4 bytes) is needed")
        })?;
        Ok(Some(u32::from_be_bytes(bytes)))
    }

    /// The value of property `name` as a number of one or two cells.
    ///
    /// # Errors
    /// It is there and has another length.
    pub fn u64(self, name: &'static str) -> Result<Option<u64>, Fault<'a>> {
        let Some(value) = self.property(name) else { return Ok(None) };
        let number = number(value).ok_or_else(|| {
            Fault::new(
                self,
                name,
                Value::Bytes(value.len()),
                "a number of one or two cells (4 or 8 bytes) is needed",
            )
        })?;
        Ok(Some(number))
    }

    /// The value of property `name` as one text.
    ///
    /// # Errors
    /// It is there and isn't UTF-8 that ends with its only NUL.
    pub fn text(self, name: &'static str) -> Result<Option<&'a str>, Fault<'a>> {
        let Some(value) = self.property(name) else { return Ok(None) };
        let text = value.strip_suffix(&[0]).filter(|text| !text.contains(&0));
        let text = text.and_then(|text| core::str::from_utf8(text).ok()).ok_or_else(|| {
            Fault::new(self, name, Value::Bytes(value.len()), "a text that ends with a NUL is needed")
        })?;
        Ok(Some(text))
    }

    /// The texts of property `name`, a list; what isn't UTF-8 is left out.
    pub fn texts(self, name: &str) -> Texts<'a> {
        Texts::new(self.property(name).unwrap_or(&[]))
    }

    /// The value of property `name` as 32-bit cells; none where it is missing.
    ///
    /// # Errors
    /// It is there and isn't a whole number of cells.
    pub fn cells(self, name: &'static str) -> Result<Cells<'a>, Fault<'a>> {
        let value = self.property(name).unwrap_or(&[]);
        let (cells, rest) = value.as_chunks::<4>();
        if !rest.is_empty() {
            let remedy = "whole cells (a multiple of 4 bytes) are needed";
            return Err(Fault::new(self, name, Value::Bytes(value.len()), remedy));
        }
        Ok(Cells(cells))
    }

    /// Whether `compatible` lists `model` (specification, 2.3.1).
    pub fn is_compatible(self, model: &str) -> bool {
        self.texts("compatible").any(|text| text == model)
    }

    /// Whether `status` says that the device can be used (specification, 2.3.4).
    pub fn is_enabled(self) -> bool {
        match self.property("status") {
            None => true,
            Some(status) => matches!(status.strip_suffix(&[0]).unwrap_or(status), b"okay" | b"ok"),
        }
    }

    /// Its `phandle`, by which other nodes refer to it.
    pub fn phandle(self) -> Option<u32> {
        let value = self.property("phandle").or_else(|| self.property("linux,phandle"))?;
        Some(u32::from_be_bytes(value.try_into().ok()?))
    }
}

/// The number in one or two big-endian cells.
pub(super) fn number(value: &[u8]) -> Option<u64> {
    match value.len() {
        4 => Some(u64::from(u32::from_be_bytes(value.try_into().ok()?))),
        8 => Some(u64::from_be_bytes(value.try_into().ok()?)),
        _ => None,
    }
}

/// The children of a node.
#[derive(Clone, Debug)]
pub struct Children<'a> {
    tree: Tree<'a>,
    offset: usize,
}

impl<'a> Iterator for Children<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Node<'a>> {
        let structure = self.tree.structure;
        let child = loop {
            let start = self.offset;
            match Token::read(structure, &mut self.offset)? {
                Token::Begin { .. } => break Node::at(self.tree, start)?,
                Token::Property { .. } | Token::Nop => {}
                Token::End | Token::Finish => {
                    // Stay here: the next call must not run into the parent's siblings.
                    self.offset = start;
                    return None;
                }
            }
        };
        let mut depth = 1usize;
        while depth > 0 {
            match Token::read(structure, &mut self.offset)? {
                Token::Begin { .. } => depth += 1,
                Token::End => depth -= 1,
                Token::Property { .. } | Token::Nop => {}
                Token::Finish => return None,
            }
        }
        Some(child)
    }
}

/// The texts of a list.
#[derive(Clone, Debug)]
pub struct Texts<'a> {
    rest: &'a [u8],
    done: bool,
}

impl<'a> Texts<'a> {
    /// The texts in a property's value.
    pub(super) fn new(value: &'a [u8]) -> Texts<'a> {
        Texts { rest: value.strip_suffix(&[0]).unwrap_or(value), done: value.is_empty() }
    }
}

impl<'a> Iterator for Texts<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        while !self.done {
            let rest = self.rest;
            let end = rest.iter().position(|&byte| byte == 0);
            self.done = end.is_none();
            self.rest = end.and_then(|end| rest.get(end + 1..)).unwrap_or(&[]);
            if let Ok(text) = core::str::from_utf8(rest.get(..end.unwrap_or(rest.len())).unwrap_or(&[])) {
                return Some(text);
            }
        }
        None
    }
}

/// A value seen as 32-bit cells.
#[derive(Clone, Copy, Debug)]
pub struct Cells<'a>(&'a [[u8; 4]]);

impl<'a> Cells<'a> {
    /// How many there are.
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Cell number `index`.
    pub fn get(self, index: usize) -> Option<u32> {
        self.0.get(index).map(|cell| u32::from_be_bytes(*cell))
    }

    /// All of them.
    pub fn iter(self) -> impl Iterator<Item = u32> + use<'a> {
        self.0.iter().map(|cell| u32::from_be_bytes(*cell))
    }

    /// Removes the first `count` cells and returns the number that they make: at most two, big-endian.
    /// `None` where there are fewer, or where `count` is above two.
    pub fn take_number(&mut self, count: usize) -> Option<u64> {
        if count > 2 {
            return None;
        }
        let (first, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(first.iter().fold(0, |number, cell| number << 32 | u64::from(u32::from_be_bytes(*cell))))
    }
}
