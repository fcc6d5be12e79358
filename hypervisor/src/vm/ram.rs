//! A VM's memory: promised when it is made, taken as it is touched, and given back.

use super::pages::common::CommonPages;
use super::pages::{Access, Means, PageError, PageSource, Pages, Segment, Usage};
use super::{BootImages, device_tree, layout};
use crate::memory::address::{PAGE_SIZE, Pa};
use crate::memory::frames::{Frames, Reservation};
use crate::memory::phys::PhysMemory;
use crate::memory::stage2::{Stage2Config, Stage2Tlb};
use crate::memory::tables::TableSource;
use crate::sync::Mutex;
use arrayvec::ArrayVec;
use core::fmt;

/// Why a VM gets no memory.
#[derive(Debug)]
pub enum RamError {
    /// There is not enough.
    OutOfMemory {
        /// Bytes that were asked for.
        needed: u64,
        /// Bytes that are free and promised to no other VM.
        free: u64,
    },
    /// It can't be had.
    Pages(PageError),
    /// The device tree can't be written, or is larger than was planned for.
    DeviceTree(device_tree::DeviceTreeError),
}

impl fmt::Display for RamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RamError::OutOfMemory { needed, free } => write!(
                f,
                "odometer,memory: {} MiB are wanted and {} MiB are free: give the machine more memory, or the VMs less",
                needed >> 20,
                free >> 20
            ),
            RamError::Pages(error) => write!(f, "{error}"),
            RamError::DeviceTree(error) => write!(f, "{error}"),
        }
    }
}

impl From<PageError> for RamError {
    fn from(error: PageError) -> Self {
        RamError::Pages(error)
    }
}

/// The memory of a VM, while it has any.
///
/// All of it is promised from the beginning, so that a VM that was made doesn't fail for want of memory later, whatever it touches.
#[derive(Debug)]
pub struct VmMemory {
    pages: Pages,
    reservation: Reservation,
    /// The page with its vCPUs' records of stolen time, once it has asked for one.
    stolen: Option<Pa>,
}

/// Where VMs' memory comes from.
#[derive(Clone, Copy)]
pub struct Store<'a> {
    /// Free memory.
    pub frames: &'a Mutex<Frames>,
    /// Pages that VMs have in common.
    pub common: &'a Mutex<CommonPages>,
}

/// A VM's account of frames: takes what the VM was promised, and promises again what comes back. The lock is held for one
/// operation of the allocator at a time; zeroing and copying are done without.
struct Account<'a> {
    store: Store<'a>,
    reservation: &'a mut Reservation,
    /// Frames that came back.
    returned: u64,
}

impl<'a> Account<'a> {
    fn new(store: Store<'a>, reservation: &'a mut Reservation) -> Self {
        Account { store, reservation, returned: 0 }
    }
}

impl TableSource for Account<'_> {
    fn allocate(&mut self, bytes: u64) -> Option<Pa> {
        self.take(bytes, bytes)
    }

    fn release(&mut self, base: Pa, bytes: u64) {
        self.give(base, bytes);
    }
}

impl PageSource for Account<'_> {
    fn take(&mut self, bytes: u64, align: u64) -> Option<Pa> {
        self.store.frames.lock().alloc_reserved(self.reservation, bytes, align)
    }

    fn give(&mut self, base: Pa, bytes: u64) {
        // What is wrong is refused and counted by the allocator.
        if self.store.frames.lock().free_reserved(self.reservation, base, bytes).is_ok() {
            self.returned += bytes.div_ceil(PAGE_SIZE);
        }
    }

    fn join(&mut self, memory: &impl PhysMemory, page: Pa) -> Option<Pa> {
        self.store.common.lock().join(memory, page)
    }

    fn leave(&mut self, page: Pa) {
        self.store.common.lock().leave(page);
    }
}

impl VmMemory {
    /// Memory for a VM with `bytes` of RAM that boots `images`, none of it touched yet.
    ///
    /// # Errors
    ///
    /// There is not enough; nothing is taken then.
    pub fn new<M: PhysMemory>(
        store: Store<'_>,
        memory: &M,
        config: &Stage2Config,
        bytes: u64,
        images: &BootImages,
    ) -> Result<VmMemory, RamError> {
        let needed = Pages::most_bytes(config, bytes);
        let (reservation, free) = {
            let mut frames = store.frames.lock();
            let free = frames.available_bytes();
            (frames.reserve(needed), free)
        };
        let Some(mut reservation) = reservation else { return Err(RamError::OutOfMemory { needed, free }) };
        let mut account = Account::new(store, &mut reservation);
        match Pages::new(config, bytes, segments(images), images.merges, memory, &mut account) {
            Ok(pages) => Ok(VmMemory { pages, reservation, stolen: None }),
            Err(error) => {
                store.frames.lock().cancel(reservation);
                Err(error.into())
            }
        }
    }

    /// The root of stage 2.
    pub fn root(&self) -> Pa {
        self.pages.root()
    }

    /// How much memory the VM has.
    pub fn usage(&self) -> Usage {
        self.pages.usage()
    }

    /// Makes it ready for the VM's first instruction: a device tree that is generated is written; everything else comes with
    /// the first access to it.
    ///
    /// # Errors
    ///
    /// [`RamError::DeviceTree`].
    pub fn load<M: PhysMemory>(
        &mut self,
        store: Store<'_>,
        memory: &M,
        tlb: &impl Stage2Tlb,
        images: &BootImages,
        spec: &device_tree::DeviceTreeSpec<'_>,
    ) -> Result<(), RamError> {
        if images.fdt.is_some() {
            return Ok(());
        }
        let tree = device_tree::build(spec).map_err(RamError::DeviceTree)?;
        let source = &mut Account::new(store, &mut self.reservation);
        Ok(self.pages.load(&mut Means { memory, tlb, source }, images.placement.dtb.0, &tree)?)
    }

    /// Makes the page at `ipa` present for an access that faulted.
    ///
    /// # Errors
    ///
    /// As [`Pages::resolve`].
    pub fn resolve<M: PhysMemory>(
        &mut self,
        store: Store<'_>,
        memory: &M,
        tlb: &impl Stage2Tlb,
        ipa: u64,
        access: Access,
    ) -> Result<(), PageError> {
        let source = &mut Account::new(store, &mut self.reservation);
        self.pages.resolve(&mut Means { memory, tlb, source }, ipa, access)
    }

    /// Where the byte at `ipa` is, for an access of the hypervisor's own, and how many bytes follow it in its page.
    ///
    /// # Errors
    ///
    /// As [`Pages::reach`].
    pub fn reach<M: PhysMemory>(
        &mut self,
        store: Store<'_>,
        memory: &M,
        tlb: &impl Stage2Tlb,
        ipa: u64,
        access: Access,
    ) -> Result<(Pa, u64), PageError> {
        let source = &mut Account::new(store, &mut self.reservation);
        self.pages.reach(&mut Means { memory, tlb, source }, ipa, access)
    }

    /// The page for records of stolen time, which the guest finds at [`layout::STOLEN_TIME_BASE`]: made, of zeros, when it is first asked for.
    ///
    /// # Errors
    ///
    /// As [`Pages::show`]; nothing is taken then.
    pub fn stolen_time<M: PhysMemory>(
        &mut self,
        store: Store<'_>,
        memory: &M,
        tlb: &impl Stage2Tlb,
    ) -> Result<Pa, PageError> {
        if let Some(page) = self.stolen {
            return Ok(page);
        }
        let source = &mut Account::new(store, &mut self.reservation);
        let page = source.take(PAGE_SIZE, PAGE_SIZE).ok_or(PageError::OutOfMemory)?;
        memory.zero(page, PAGE_SIZE);
        memory.settle(page, PAGE_SIZE, false);
        if let Err(error) =
            self.pages.show(&mut Means { memory, tlb, source: &mut *source }, layout::STOLEN_TIME_BASE, page)
        {
            source.give(page, PAGE_SIZE);
            return Err(error);
        }
        self.stolen = Some(page);
        Ok(page)
    }

    /// Forgets all that the guest has done. No CPU uses its tables any more, and its VMID has been released.
    pub fn reset<M: PhysMemory>(&mut self, store: Store<'_>, memory: &M) {
        let account = &mut Account::new(store, &mut self.reservation);
        self.pages.reset(memory, account);
        if let Some(page) = self.stolen.take() {
            account.give(page, PAGE_SIZE);
        }
    }

    /// Gives everything back, as after [`VmMemory::reset`]: how many frames that were.
    pub fn end<M: PhysMemory>(self, store: Store<'_>, memory: &M) -> u64 {
        let VmMemory { pages, mut reservation, stolen } = self;
        let mut account = Account::new(store, &mut reservation);
        pages.end(memory, &mut account);
        if let Some(page) = stolen {
            account.give(page, PAGE_SIZE);
        }
        let returned = account.returned;
        store.frames.lock().cancel(reservation);
        returned
    }
}

/// What lies in the VM's RAM before it is touched. The images are mapped where the bundle has them: EL2's map is one to one, so
/// a reference is a physical address.
fn segments(images: &BootImages) -> ArrayVec<Segment, { super::pages::MAX_SEGMENTS }> {
    let segment = |ipa: u64, bytes: &'static [u8]| Segment { ipa, pa: Pa(bytes.as_ptr() as u64), bytes };
    let placement = &images.placement;
    let kernel = Some(segment(placement.kernel.0, images.kernel));
    let ramdisk = images.ramdisk.zip(placement.ramdisk).map(|(bytes, ipa)| segment(ipa.0, bytes));
    let fdt = images.fdt.map(|bytes| segment(placement.dtb.0, bytes));
    [kernel, ramdisk, fdt].into_iter().flatten().collect()
}
