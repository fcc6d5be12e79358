//! Reading the bundle: the FIT image that holds all guests.
//!
//! The format is U-Boot's flattened image tree (Flattened Image Tree specification 0.9; U-Boot's
//! `doc/usage/fit/source_file_format`), a device tree blob with external data behind it:
//!
//! ```text
//! /images/<name>          type, arch, compression = "none", load, entry, and the data:
//!                         data-size with data-offset (from the blob's end, rounded up to 4 bytes)
//!                         or data-position (from the bundle's beginning); or inline as data
//! /configurations/<vm>    kernel, ramdisk, fdt: names of images; bootargs;
//!                         odometer,vcpus      vCPUs of each VM, 1 to 8 (1)
//!                         odometer,memory     bytes of RAM of each VM
//!                         odometer,count      VMs alike (1)
//!                         odometer,pin        physical CPUs of the first vCPUs
//!                         odometer,vmid       "pinned": its VMID never changes
//!                         odometer,disk       name of an image of type filesystem: a virtio-blk
//!                         odometer,disk-access  "private" (the default) or "read-only"
//!                         odometer,console    there for a virtio-console
//!                         odometer,net        there for a virtio-net
//! ```
//!
//! `default` of `/configurations` is ignored: all of them start. Checksums (`hash` nodes) aren't verified.
//! [`Bundle::parse`] checks everything, so that what [`Bundle::configs`] yields can be used as it is.

mod config;
mod error;
mod image;
#[cfg(test)]
mod tests;

pub use config::{VmConfig, VmName};
pub use error::BundleError;
pub use image::Image;

use arrayvec::ArrayVec;

use crate::ids::MAX_VMS;
use crate::platform::fdt::{Blob, Fault, Node, Value};

/// A checked bundle.
#[derive(Clone, Copy, Debug)]
pub struct Bundle<'a> {
    data: &'a [u8],
    images: Node<'a>,
    configurations: Node<'a>,
    /// VMs of all configurations together.
    vms: usize,
}

impl<'a> Bundle<'a> {
    /// All of its bytes, the images' too.
    pub fn bytes(&self) -> &'a [u8] {
        self.data
    }

    /// Checks the bundle in `data`: the whole region of the initrd.
    ///
    /// # Errors
    /// It is no FIT; or which entry of it is wrong, its value and what would be right.
    pub fn parse(data: &'a [u8]) -> Result<Bundle<'a>, BundleError<'a>> {
        let blob = Blob::new(data).map_err(|error| BundleError::from_fdt(error, data))?;
        let section = |name| {
            let remedy = "a FIT image is needed, as `cargo xtask` writes it from a scenario";
            blob.tree().root().child(name).ok_or(Fault::of(name, "", Value::Missing, remedy))
        };
        let mut bundle =
            Bundle { data, images: section("images")?, configurations: section("configurations")?, vms: 0 };
        bundle.vms = bundle.check(blob.size())?;
        Ok(bundle)
    }

    /// The configurations, each of which makes [`VmConfig::count`] VMs.
    pub fn configs(&self) -> impl Iterator<Item = VmConfig<'a>> + use<'a> {
        let bundle = *self;
        // `parse` has seen that none of them fails.
        self.configurations.children().filter_map(move |node| bundle.config(node).ok())
    }

    /// How many VMs all configurations make: 1 to [`MAX_VMS`].
    pub fn vms(&self) -> usize {
        self.vms
    }

    fn config(&self, node: Node<'a>) -> Result<VmConfig<'a>, Fault<'a>> {
        VmConfig::read(node, self.images, self.data)
    }

    /// Checks all images, those that nobody uses too, and all configurations. Returns the number of VMs.
    fn check(&self, blob_size: usize) -> Result<usize, Fault<'a>> {
        for image in self.images.children() {
            Image::read(image, self.data, blob_size)?;
        }
        // A VM's name finds its lines in the report, so no two may be alike.
        // No heap yet: the bundle says how much of one is needed. Each configuration makes a VM at least.
        let mut names = ArrayVec::<(&str, u32), MAX_VMS>::new();
        let mut vms = 0usize;
        for node in self.configurations.children() {
            let config = self.config(node)?;
            vms = vms.saturating_add(config.count as usize);
            if vms > MAX_VMS {
                let remedy = "all configurations together may make 256 VMs at most";
                return Err(Fault::new(node, "odometer,count", Value::Number(config.count.into()), remedy));
            }
            let name = (config.name, config.count);
            if names.iter().any(|other| config::names_collide(name, *other)) {
                let remedy = "its VMs would have names that another configuration's VMs have";
                return Err(Fault::new(node, "", Value::Present, remedy));
            }
            let _ = names.try_push(name);
        }
        match vms {
            0 => Err(Fault::new(self.configurations, "", Value::Present, "it has no VM")),
            _ => Ok(vms),
        }
    }
}
