//! The console that `/chosen/stdout-path` names (Devicetree specification 0.4, 3.6; Linux' binding `arm,pl011`).

use super::interrupts::interrupt;
use super::{UartKind, UartNode};
use crate::memory::address::Pa;
use crate::platform::fdt::{Fault, Node, Tree, Value};

/// The console; `None` where the tree names none, or one that isn't a PL011.
///
/// Without `gic` its interrupt isn't looked up.
///
/// # Errors
/// It names a node that isn't there, or whose registers can't be found.
pub(super) fn uart<'a>(tree: Tree<'a>, gic: Option<Node<'a>>) -> Result<Option<UartNode>, Fault<'a>> {
    let Some((node, options)) = stdout(tree)? else { return Ok(None) };
    match is_pl011(node) {
        true => pl011(node, options, gic).map(Some),
        false => Ok(None),
    }
}

/// The first enabled PL011 of the tree whose registers can be found.
pub(super) fn first_uart(tree: Tree<'_>) -> Option<UartNode> {
    let candidates = tree.nodes().filter(|node| is_pl011(*node) && node.is_enabled());
    candidates.filter_map(|node| pl011(node, "", None).ok()).next()
}

fn is_pl011(node: Node<'_>) -> bool {
    node.is_compatible("arm,pl011") || node.is_compatible("arm,sbsa-uart")
}

/// What the tree says of the PL011 `node`; `options` are those of `stdout-path`.
fn pl011<'a>(node: Node<'a>, options: &str, gic: Option<Node<'a>>) -> Result<UartNode, Fault<'a>> {
    let Some(reg) = node.reg(0)?.filter(|reg| reg.size >= 0x48) else {
        let remedy = "the UART's registers are needed (4 KiB)";
        return Err(Fault::new(node, "reg", Value::Missing, remedy));
    };
    let intid = match gic {
        Some(gic) => interrupt(node, gic, 0)?,
        None => None,
    };
    let digits = options.split(|c: char| !c.is_ascii_digit()).next().unwrap_or("");
    Ok(UartNode {
        kind: UartKind::Pl011,
        base: Pa(reg.address),
        size: reg.size,
        intid,
        clock_hz: clock(node),
        baud: digits.parse().ok().filter(|baud| *baud > 0),
    })
}

/// The node of the console, and the options that follow its name.
fn stdout(tree: Tree<'_>) -> Result<Option<(Node<'_>, &str)>, Fault<'_>> {
    let Some(chosen) = tree.root().child("chosen") else { return Ok(None) };
    let property = if chosen.has("stdout-path") { "stdout-path" } else { "linux,stdout-path" };
    let Some(text) = chosen.text(property)? else { return Ok(None) };
    let (name, options) = text.split_once(':').unwrap_or((text, ""));
    let path = match name.starts_with('/') {
        true => Some(name),
        false => tree.root().child("aliases").and_then(|aliases| alias(aliases, name)),
    };
    match path.and_then(|path| tree.node(path)) {
        Some(node) => Ok(Some((node, options))),
        None => {
            let remedy = "no such node; a path or an entry of /aliases is needed";
            Err(Fault::new(chosen, property, Value::Text(text), remedy))
        }
    }
}

/// The path that alias `name` stands for.
fn alias<'a>(aliases: Node<'a>, name: &str) -> Option<&'a str> {
    let value = aliases.property(name)?;
    core::str::from_utf8(value.strip_suffix(&[0])?).ok()
}

/// Frequency in Hz of the clock `uartclk` (or the first) of `node`, where that is a fixed one.
fn clock(node: Node<'_>) -> Option<u32> {
    let wanted = node.texts("clock-names").position(|name| name == "uartclk").unwrap_or(0);
    let clocks = node.cells("clocks").ok()?;
    let mut at = 0usize;
    for index in 0.. {
        let provider = node.tree().with_phandle(clocks.get(at)?)?;
        if index == wanted {
            let fixed = provider.is_compatible("fixed-clock");
            return provider.u32("clock-frequency").ok()?.filter(|hertz| fixed && *hertz > 0);
        }
        let specifier = provider.u32("#clock-cells").ok()??;
        at = at.checked_add(1)?.checked_add(specifier as usize)?;
    }
    None
}
