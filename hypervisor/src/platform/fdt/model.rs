//! Device trees for tests: a tree in memory that is easily changed, written by `vm-fdt`.

use vm_fdt::{FdtReserveEntry, FdtWriter};

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) properties: Vec<(String, Vec<u8>)>,
    pub(crate) children: Vec<Model>,
}

impl Model {
    pub(crate) fn new(name: &str) -> Model {
        Model { name: name.into(), ..Model::default() }
    }

    /// Adds or replaces a property.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Vec<u8>>) -> Model {
        self.set("", name, value);
        self
    }

    /// Adds a child.
    pub(crate) fn child(mut self, child: Model) -> Model {
        self.children.push(child);
        self
    }

    /// The node at `path` below this one (`a/b`), made where it isn't there yet.
    pub(crate) fn at(&mut self, path: &str) -> &mut Model {
        let mut node = self;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let index = node.children.iter().position(|child| child.name == name).unwrap_or_else(|| {
                node.children.push(Model::new(name));
                node.children.len() - 1
            });
            node = &mut node.children[index];
        }
        node
    }

    /// Adds or replaces a property of the node at `path`.
    pub(crate) fn set(&mut self, path: &str, name: &str, value: impl Into<Vec<u8>>) {
        let node = self.at(path);
        node.properties.retain(|(other, _)| other != name);
        node.properties.push((name.into(), value.into()));
    }

    /// Removes a property of the node at `path`.
    pub(crate) fn unset(&mut self, path: &str, name: &str) {
        self.at(path).properties.retain(|(other, _)| other != name);
    }

    /// Removes the node at `path`.
    pub(crate) fn remove(&mut self, path: &str) {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        self.at(parent).children.retain(|child| child.name != name);
    }

    /// The blob, with this node as its root.
    pub(crate) fn blob(&self) -> Vec<u8> {
        self.blob_with_reservations(&[])
    }

    /// The blob with a reservation map of addresses and sizes.
    pub(crate) fn blob_with_reservations(&self, reservations: &[(u64, u64)]) -> Vec<u8> {
        let entries: Vec<_> =
            reservations.iter().map(|&(base, size)| FdtReserveEntry::new(base, size).unwrap()).collect();
        let mut writer = FdtWriter::new_with_mem_reserv(&entries).unwrap();
        self.write(&mut writer);
        writer.finish().unwrap()
    }

    fn write(&self, writer: &mut FdtWriter) {
        let node = writer.begin_node(&self.name).unwrap();
        for (name, value) in &self.properties {
            writer.property(name, value).unwrap();
        }
        for child in &self.children {
            child.write(writer);
        }
        writer.end_node(node).unwrap();
    }
}

/// A value of 32-bit cells.
pub(crate) fn cells(cells: &[u32]) -> Vec<u8> {
    cells.iter().flat_map(|cell| cell.to_be_bytes()).collect()
}

/// A value of 64-bit numbers, two cells each.
pub(crate) fn wide(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// A value of texts.
pub(crate) fn texts(texts: &[&str]) -> Vec<u8> {
    texts.iter().flat_map(|text| text.bytes().chain([0])).collect()
}
