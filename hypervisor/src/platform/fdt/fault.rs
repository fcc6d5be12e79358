//! What is wrong with an entry of a tree, said so that a person can put it right.

use core::fmt;

use super::Node;

/// An entry of a device tree or bundle that can't be used: which, its value, and what would be right.
///
/// It borrows from the blob: it is made before there is a heap.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fault<'a> {
    /// The node.
    pub node: Place<'a>,
    /// Name of the property; empty where the node itself is meant.
    pub property: &'static str,
    /// What it holds.
    pub value: Value<'a>,
    /// What would be right, or what to do.
    pub remedy: &'static str,
}

/// Where a fault is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Place<'a> {
    /// At a node.
    Node(Node<'a>),
    /// At something that isn't there or isn't a node.
    Name(&'a str),
}

/// The value of a faulty entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// The entry isn't there.
    Missing,
    /// A count or an index.
    Number(u64),
    /// An address, a size or an identifier, best read in hexadecimal.
    Hex(u64),
    /// Bytes of this length that can't be what they should be.
    Bytes(usize),
    /// A text.
    Text(&'a str),
    /// The value is of no interest beside the remedy.
    Present,
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Missing => f.write_str("is missing"),
            Value::Number(number) => write!(f, "= {number}"),
            Value::Hex(number) => write!(f, "= {number:#x}"),
            Value::Bytes(length) => write!(f, "has {length} bytes"),
            Value::Text(text) => write!(f, "= \"{}\"", text.escape_default()),
            Value::Present => f.write_str("can't be used"),
        }
    }
}

impl<'a> Fault<'a> {
    /// A fault of `property` of `node`.
    pub fn new(node: Node<'a>, property: &'static str, value: Value<'a>, remedy: &'static str) -> Fault<'a> {
        Fault { node: Place::Node(node), property, value, remedy }
    }

    /// A fault of what should be, or is, at `name`.
    pub fn of(name: &'a str, property: &'static str, value: Value<'a>, remedy: &'static str) -> Fault<'a> {
        Fault { node: Place::Name(name), property, value, remedy }
    }
}

impl fmt::Display for Fault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            Place::Node(node) => write!(f, "{}", node.path())?,
            Place::Name(name) => f.write_str(name)?,
        }
        match self.property {
            "" => write!(f, " {}: {}", self.value, self.remedy),
            property => write!(f, ": {} {}: {}", property, self.value, self.remedy),
        }
    }
}

impl core::error::Error for Fault<'_> {}
