//! CPUs, and how they are started (Devicetree specification 0.4, 3.8; Linux' bindings `arm/cpus` and `arm/psci`).

use arrayvec::ArrayVec;

use super::{Conduit, CpuNode, EnableMethod};
use crate::ids::MAX_CPUS;
use crate::memory::address::Pa;
use crate::platform::fdt::{Fault, Node, Tree, Value};

/// The affinity fields of MPIDR_EL1 (Arm ARM D19.2.102): Aff3, and Aff2 to Aff0.
const AFFINITY: u64 = 0xff_00ff_ffff;

/// How PSCI firmware is called; `None` where the machine has none that takes the standard function numbers.
pub(super) fn psci(tree: Tree<'_>) -> Result<Option<Conduit>, Fault<'_>> {
    let mut nodes = tree.compatible_with(&["arm,psci-1.0", "arm,psci-0.2"]);
    let Some(node) = nodes.find(|node| node.is_enabled()) else { return Ok(None) };
    match node.text("method")? {
        Some("smc") => Ok(Some(Conduit::Smc)),
        Some("hvc") => Ok(Some(Conduit::Hvc)),
        other => {
            let value = other.map_or(Value::Missing, Value::Text);
            Err(Fault::new(node, "method", value, "\"smc\" or \"hvc\" is needed"))
        }
    }
}

/// The CPUs in `/cpus`, in the tree's order.
pub(super) fn cpus<'a>(
    parent: Option<Node<'a>>,
    psci: Option<Conduit>,
) -> Result<ArrayVec<CpuNode, MAX_CPUS>, Fault<'a>> {
    let Some(parent) = parent else {
        return Err(Fault::of("/cpus", "", Value::Missing, "a node for each CPU is needed in it"));
    };
    let mut cpus = ArrayVec::<CpuNode, MAX_CPUS>::new();
    for node in parent.children().filter(is_usable_cpu) {
        let Some(reg) = parent.regs_of(node)?.next() else {
            return Err(Fault::new(node, "reg", Value::Missing, "the CPU's MPIDR_EL1 affinity is needed"));
        };
        let mpidr = reg.address;
        let fault = |remedy| Err(Fault::new(node, "reg", Value::Hex(mpidr), remedy));
        if mpidr & !AFFINITY != 0 {
            return fault("only MPIDR_EL1's affinity fields may be set");
        }
        if cpus.iter().any(|cpu| cpu.mpidr == mpidr) {
            return fault("another CPU has the same; each needs its own");
        }
        let enable = enable_method(node, psci)?;
        if cpus.try_push(CpuNode { mpidr, enable }).is_err() {
            return fault("more than 128 CPUs; start the machine with fewer (QEMU: -smp 128)");
        }
    }
    if cpus.is_empty() {
        let remedy = "it has no node with device_type = \"cpu\" that can be used";
        return Err(Fault::new(parent, "", Value::Present, remedy));
    }
    Ok(cpus)
}

/// Whether it describes a CPU that works. `disabled` says of a CPU that it isn't started yet.
fn is_usable_cpu(node: &Node<'_>) -> bool {
    let failed = node.texts("status").next().is_some_and(|status| status.starts_with("fail"));
    node.texts("device_type").any(|kind| kind == "cpu") && !failed
}

fn enable_method(node: Node<'_>, psci: Option<Conduit>) -> Result<EnableMethod, Fault<'_>> {
    match node.text("enable-method")? {
        None => Ok(EnableMethod::None),
        Some("psci") if psci.is_some() => Ok(EnableMethod::Psci),
        Some("psci") => {
            let remedy = "but no node is compatible with \"arm,psci-0.2\" or \"arm,psci-1.0\"";
            Err(Fault::new(node, "enable-method", Value::Text("psci"), remedy))
        }
        Some("spin-table") => match node.u64("cpu-release-addr")? {
            Some(release) if release != 0 && release.is_multiple_of(8) => {
                Ok(EnableMethod::SpinTable { release: Pa(release) })
            }
            other => {
                let value = other.map_or(Value::Missing, Value::Hex);
                let remedy = "the 8-byte aligned address of the word that the CPU polls is needed";
                Err(Fault::new(node, "cpu-release-addr", value, remedy))
            }
        },
        Some(other) => {
            let remedy = "CPUs are started by \"psci\" or \"spin-table\" only";
            Err(Fault::new(node, "enable-method", Value::Text(other), remedy))
        }
    }
}
