//! How a device reaches its guest's memory.
//!
//! Addresses, indices and lengths in a virtqueue are the guest's choice. They stay in [`GuestAddress`], with which nothing can be
//! done but to hand it to [`GuestMemory`], which checks it against the VM's RAM each time.

/// A guest-physical address that a guest chose.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GuestAddress(pub u64);

impl GuestAddress {
    /// The address `bytes` further on. Wraps: what lies there is checked when it is used.
    #[inline(always)]
    pub const fn plus(self, bytes: u64) -> GuestAddress {
        GuestAddress(self.0.wrapping_add(bytes))
    }

    /// Whether it is a multiple of `alignment`, a power of two.
    #[inline(always)]
    pub const fn is_aligned(self, alignment: u64) -> bool {
        self.0 & (alignment - 1) == 0
    }
}

/// A range is not, or not altogether, RAM of the VM; or the VM has no memory any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoMemory;

/// The RAM of one VM.
pub trait GuestMemory {
    /// Whether `bytes` from `at` on are RAM. An empty range is RAM if its address is, or is the end of it.
    fn contains(&self, at: GuestAddress, bytes: u64) -> bool;

    /// Copies from the guest's memory.
    ///
    /// # Errors
    /// Part of the range isn't RAM.
    fn read(&self, at: GuestAddress, bytes: &mut [u8]) -> Result<(), NoMemory>;

    /// Copies into the guest's memory.
    ///
    /// # Errors
    /// Part of the range isn't RAM.
    fn write(&self, at: GuestAddress, bytes: &[u8]) -> Result<(), NoMemory>;

    /// Reads two bytes in one access.
    ///
    /// # Errors
    /// It isn't RAM, or `at` is odd.
    fn read16(&self, at: GuestAddress) -> Result<u16, NoMemory>;

    /// Writes two bytes in one access.
    ///
    /// # Errors
    /// It isn't RAM, or `at` is odd.
    fn write16(&self, at: GuestAddress, value: u16) -> Result<(), NoMemory>;
}
