//! virtio-console: one port, without VIRTIO_CONSOLE_F_MULTIPORT (Virtio 1.2, 5.3).
//!
//! Its output goes where that of the VM's PL011 goes, into the same queue of the VM's lines; a line that is sent as one block stays
//! whole. Where the queue is full, the chain stays with the device, with a note of how much of it is done, and is gone
//! on with when the console has room again (`resume`): the driver waits for its buffer, and nothing is lost.
//!
//! Input goes to it, and no more to the PL011, once the guest has sent something through it: nothing else tells that
//! somebody has opened it. (Drivers give buffers for input when they begin, and Linux' driver of the PL011 goes on letting it
//! interrupt when nobody has it open any more.) It stays in the PL011's queue until the driver has buffers for it.
//!
//! What comes from the console, `resume` and `offer_input`, is called with the console's lock held. It only tries the queue's
//! lock: a mark is left for whoever holds it, who looks for it after unlocking.

use super::queue::{Broken, Queue};
use super::{Machine, Window};
use crate::ids::VmId;
use core::sync::atomic::{AtomicBool, Ordering::SeqCst, fence};

/// The driver receives.
pub const RECEIVE: u32 = 0;
/// The driver transmits.
pub const TRANSMIT: u32 = 1;
/// Most descriptors of a queue.
pub const QUEUE: u16 = 64;

/// Bytes that are moved at a time.
const PIECE: usize = 128;
/// Most bytes of output that are moved in one go; then the console has its turn.
const MOST: u32 = 8192;

/// The state of a virtio-console.
#[derive(Debug, Default)]
pub struct Console {
    /// The guest has sent something: input goes here.
    opened: AtomicBool,
    /// Output waits for room.
    blocked: AtomicBool,
    /// Somebody has found the transmit queue locked.
    output_wanted: AtomicBool,
    /// Somebody has found the receive queue locked.
    input_wanted: AtomicBool,
}

impl Console {
    /// As after power-on.
    pub(super) fn reset(&self, vm: VmId, machine: &impl Machine) {
        self.blocked.store(false, SeqCst);
        if self.opened.swap(false, SeqCst) {
            machine.console_divert(vm, false);
        }
    }

    /// The driver has output.
    pub(super) fn transmit(&self, window: &Window, machine: &impl Machine) {
        let Some(queue) = window.queue(TRANSMIT) else { return };
        let send = |queue| {
            window.with_queue(machine, queue, |queue, memory| self.send(window, machine, queue, memory));
            fence(SeqCst);
        };
        send(queue.lock());
        while self.output_wanted.swap(false, SeqCst)
            && let Some(queue) = queue.try_lock()
        {
            send(queue);
        }
        if !self.opened.load(SeqCst) && window.is_running() {
            self.opened.store(true, SeqCst);
            machine.console_divert(window.vm, true);
            self.offer_input(window, machine);
        }
        machine.console_service(window.vm);
    }

    /// The console has room. Whether there may be more output now.
    pub(super) fn resume(&self, window: &Window, machine: &impl Machine) -> bool {
        if !self.blocked.load(SeqCst) {
            return false;
        }
        let Some(queue) = window.queue(TRANSMIT) else { return false };
        self.output_wanted.store(true, SeqCst);
        let Some(queue) = queue.try_lock() else { return false };
        self.output_wanted.store(false, SeqCst);
        window.with_queue(machine, queue, |queue, memory| self.send(window, machine, queue, memory));
        true
    }

    fn send<M: Machine>(
        &self,
        window: &Window,
        machine: &M,
        queue: &mut Queue,
        memory: &M::Memory<'_>,
    ) -> Result<(), Broken> {
        let mut budget = MOST;
        let mut used = false;
        let mut blocked = false;
        for _ in 0..queue.take_notice(memory)? {
            let done = queue.progress;
            let Some(chain) = queue.pop(memory)? else { break };
            let head = chain.head();
            let all = chain.readable();
            let moved = move_out(window, machine, memory, all.skip(done).take(budget))?;
            let done = done.saturating_add(moved);
            budget -= moved.min(budget);
            if done < all.len() {
                queue.put_back(done);
                blocked = true;
                break;
            }
            queue.push(memory, head, 0)?;
            used = true;
        }
        self.blocked.store(blocked, SeqCst);
        if used {
            window.signal_used(machine, queue, memory)?;
        }
        Ok(())
    }

    /// The driver has buffers for input.
    pub(super) fn receive(&self, window: &Window, machine: &impl Machine) {
        let Some(queue) = window.queue(RECEIVE) else { return };
        let receive = |queue| {
            window.with_queue(machine, queue, |queue, memory| receive(window, machine, queue, memory));
            fence(SeqCst);
        };
        receive(queue.lock());
        while self.input_wanted.swap(false, SeqCst)
            && let Some(queue) = queue.try_lock()
        {
            receive(queue);
        }
        // Room for input that the console has held back, perhaps.
        machine.console_service(window.vm);
    }

    /// The console has input.
    pub(super) fn offer_input(&self, window: &Window, machine: &impl Machine) {
        let Some(queue) = window.queue(RECEIVE) else { return };
        self.input_wanted.store(true, SeqCst);
        let Some(queue) = queue.try_lock() else { return };
        self.input_wanted.store(false, SeqCst);
        window.with_queue(machine, queue, |queue, memory| receive(window, machine, queue, memory));
    }
}

/// Moves output to the console as far as it has room; how many bytes that were.
fn move_out<M: Machine>(
    window: &Window,
    machine: &M,
    memory: &M::Memory<'_>,
    part: super::queue::Part<'_>,
) -> Result<u32, Broken> {
    let mut rest = part;
    let mut buffer = [0; PIECE];
    while !rest.is_empty() {
        let read = rest.read(memory, &mut buffer)?;
        let taken = machine.console_output(window.vm, buffer.get(..read).unwrap_or_default());
        rest = rest.skip(taken as u32);
        if taken < read || read == 0 {
            break;
        }
    }
    Ok(part.len() - rest.len())
}

/// Moves input to the driver's buffers, as much as there is or as they hold.
fn receive<M: Machine>(
    window: &Window,
    machine: &M,
    queue: &mut Queue,
    memory: &M::Memory<'_>,
) -> Result<(), Broken> {
    let mut used = false;
    let mut buffer = [0; PIECE];
    for _ in 0..queue.take_notice(memory)? {
        let Some(chain) = queue.pop(memory)? else { break };
        let (head, room) = (chain.head(), chain.writable());
        let most = (room.len() as usize).min(PIECE);
        let taken = machine.console_input(window.vm, buffer.get_mut(..most).unwrap_or_default());
        if taken == 0 && most != 0 {
            // There are buffers enough until there is input: a driver that fills its queue need not say so each time.
            queue.put_back(0);
            queue.silence(memory)?;
            break;
        }
        let written = room.write(memory, buffer.get(..taken).unwrap_or_default())?;
        queue.push(memory, head, written as u32)?;
        used = true;
    }
    if used {
        window.signal_used(machine, queue, memory)?;
    }
    Ok(())
}
