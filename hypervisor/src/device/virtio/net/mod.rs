//! virtio-net (Virtio 1.2, 5.1): network cards of VMs on one switch.
//!
//! A frame is delivered when its sender rings the bell: it is copied once, out of the sender's buffers, and from there straight into
//! a buffer of each receiver. A receiver that has no buffer, or none that is large enough, loses it, which is counted; the
//! sender never waits. No offloads are offered: a frame is what goes over the wire, at most 1514 bytes and a VLAN tag.

mod switch;

use super::queue::{Broken, Queue};
use super::{Machine, Window, registers};
use crate::ids::VmId;
use crate::stats::Counter;
use crate::sync::Mutex;
use alloc::boxed::Box;
pub use switch::{Destination, Mac, Switch};

/// The driver receives.
pub const RECEIVE: u32 = 0;
/// The driver transmits.
pub const TRANSMIT: u32 = 1;
/// Most descriptors of a queue.
pub const QUEUE: u16 = 256;

/// VIRTIO_NET_F_MAC, _STATUS.
pub const FEATURES: u64 = 1 << 5 | 1 << 16;
/// VIRTIO_NET_S_LINK_UP.
const LINK_UP: u8 = 1;

/// `struct virtio_net_hdr_v1`, before each frame: all zero without offloads, but for `num_buffers`.
const HEADER: usize = 12;
/// Where `num_buffers` is in it.
const NUM_BUFFERS: usize = 10;
/// Addresses and type of an Ethernet frame.
const FRAME_LEAST: usize = 14;
/// The longest frame: header, VLAN tag, 1500 bytes.
const FRAME_MOST: usize = FRAME_LEAST + 4 + 1500;

/// What a card has done.
#[derive(Debug, Default)]
pub struct NetCounters {
    /// Frames that the driver has sent.
    pub sent: Counter,
    /// Their bytes.
    pub sent_bytes: Counter,
    /// Frames of the driver that are no frames: too short, too long, without a header.
    pub refused: Counter,
    /// Frames that the driver was given.
    pub received: Counter,
    /// Their bytes.
    pub received_bytes: Counter,
    /// Frames lost because the driver had no buffer for them.
    pub lost: Counter,
}

/// A VM's network card.
#[derive(Debug)]
pub struct Net {
    mac: Mac,
    /// What it has done. Those of what was sent are written under the transmit queue's lock, the others under the receive queue's.
    pub counters: NetCounters,
    /// The frame that is being sent, behind its header. Locked by who holds the transmit queue.
    frame: Mutex<Box<[u8; HEADER + FRAME_MOST]>>,
}

impl Net {
    /// Bytes of heap.
    pub const HEAP: usize = HEADER + FRAME_MOST;

    /// The card of `vm`. Allocates.
    pub fn new(vm: VmId) -> Net {
        let frame = Mutex::new(Box::new([0; HEADER + FRAME_MOST]));
        Net { mac: Mac::of(vm), counters: NetCounters::default(), frame }
    }

    /// `struct virtio_net_config`: mac, status.
    pub(super) fn config(&self) -> [u8; registers::CONFIG] {
        let mut config = [0; registers::CONFIG];
        let fields = self.mac.0.into_iter().chain([LINK_UP]);
        config.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        config
    }

    /// The driver has frames to send.
    pub(super) fn transmit(&self, window: &Window, machine: &impl Machine) {
        let Some(queue) = window.queue(TRANSMIT) else { return };
        window.with_queue(machine, queue.lock(), |queue, memory| {
            let frame = &mut **self.frame.lock();
            let mut used = false;
            // What comes meanwhile rings the bell again.
            for _ in 0..queue.take_notice(memory)? {
                let Some(chain) = queue.pop(memory)? else { break };
                let head = chain.head();
                let part = chain.readable();
                let len = part.len() as usize;
                let mut read = 0;
                if (HEADER + FRAME_LEAST..=HEADER + FRAME_MOST).contains(&len) {
                    read = part.read(memory, frame)?;
                }
                // Its buffer may be used again before the receivers have looked: it was copied.
                queue.push(memory, head, 0)?;
                used = true;
                match frame.get_mut(..read).filter(|_| read != 0) {
                    None => self.counters.refused.increment(),
                    Some(frame) => {
                        self.counters.sent.increment();
                        self.counters.sent_bytes.add((read - HEADER) as u64);
                        forward(machine, window.vm, frame);
                    }
                }
            }
            if used {
                window.signal_used(machine, queue, memory)?;
            }
            Ok(())
        });
    }

    /// A frame for the driver, behind a header.
    fn receive(&self, window: &Window, machine: &impl Machine, frame: &[u8]) {
        let Some(queue) = window.queue(RECEIVE) else { return };
        let mut delivered = false;
        let guard = queue.lock();
        window.with_queue(machine, guard, |queue, memory| {
            delivered = deliver(queue, memory, frame)?;
            if delivered {
                self.counters.received.increment();
                self.counters.received_bytes.add((frame.len() - HEADER) as u64);
                window.signal_used(machine, queue, memory)?;
            }
            Ok(())
        });
        // A card that nobody drives loses nothing.
        if !delivered && window.is_running() {
            self.counters.lost.increment_shared();
        }
    }
}

/// Puts a frame with its header into the next buffer; `false`: there is none for it.
fn deliver(
    queue: &mut Queue,
    memory: &impl super::memory::GuestMemory,
    frame: &[u8],
) -> Result<bool, Broken> {
    let Some(chain) = queue.pop(memory)? else { return Ok(false) };
    let head = chain.head();
    let room = chain.writable();
    if (room.len() as usize) < frame.len() {
        queue.put_back(0);
        return Ok(false);
    }
    let written = room.write(memory, frame)?;
    queue.push(memory, head, written as u32)?;
    Ok(true)
}

/// Sends a frame with its header from `vm` to whom it is for.
fn forward(machine: &impl Machine, vm: VmId, frame: &mut [u8]) {
    // The sender's header says nothing without offloads; the receiver's says that the frame is in one buffer.
    let Some((header, ethernet)) = frame.split_at_mut_checked(HEADER) else { return };
    header.fill(0);
    if let Some(count) = header.get_mut(NUM_BUFFERS) {
        *count = 1;
    }
    let Some((to, from)) = Mac::of_frame(ethernet) else { return };
    let switch = machine.switch();
    switch.learn(from, vm);
    match switch.find(to) {
        Destination::One(port) => receive_at(machine, vm, port, frame),
        Destination::All => {
            for port in 0..machine.vms() {
                receive_at(machine, vm, VmId(port as u16), frame);
            }
        }
    }
}

/// Gives a frame of `from` to `to`, unless that is the same.
fn receive_at(machine: &impl Machine, from: VmId, to: VmId, frame: &[u8]) {
    if from != to
        && let Some((net, window)) = machine.devices(to).and_then(super::Devices::net)
    {
        net.receive(window, machine, frame);
    }
}
