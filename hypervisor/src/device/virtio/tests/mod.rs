//! Tests of the devices, as a driver meets them.

mod block;
mod console;
mod events;
mod hostile;
mod net;
mod queue;
mod registers;

use super::fake::{Driver, FakeMachine, RAM, RAM_BYTES};
use super::registers::{EVENT_INDEX, VERSION_1, status};
use super::{DeviceSet, Disk};
use crate::device::AccessSize;

/// Where tests put their data: far behind the rings.
const DATA: u64 = RAM + 0x8_0000;

/// One of each.
const ALL: DeviceSet = DeviceSet { console: true, disk: Some(DISK), net: true };
/// A disk of 5000 bytes that can be written.
const DISK: Disk = Disk { image: &[0x5a; 5000], read_only: false };
const CONSOLE: u32 = 0;
const BLOCK: u32 = 1;
const NET: u32 = 2;
