//! The console that `/chosen/stdout-path` names (Devicetree specification 0.4, 3.6; Linux' binding `arm,pl011`).

use super::interrupts::Interrupts;
use super::{TopLevel, UartKind, UartNode};
use crate::memory::address::Pa;
use crate::platform::fdt::{Fault, Node, Tree, Value};

/// What can be driven as a PL011: itself, and the subset of it that SBSA defines.
const PL011: [&str; 2] = ["arm,pl011", "arm,sbsa-uart"];

/// The console; `None` where the tree names none, or one that isn't a PL011.
///
/// Without `gic` its interrupt isn't looked up.
///
/// # Errors
/// It names a node that isn't there, or whose registers can't be found.
pub(super) fn uart<'a>(top: &TopLevel<'a>, gic: Option<Node<'a>>) -> Result<Option<UartNode>, Fault<'a>> {
    let Some((node, options)) = stdout(top)? else { return Ok(None) };
    match PL011.iter().any(|model| node.is_compatible(model)) {
        true => pl011(node, options, gic).map(Some),
        false => Ok(None),
    }
}

/// The first enabled PL011 of the tree whose registers can be found.
pub(super) fn first_uart(tree: Tree<'_>) -> Option<UartNode> {
    let candidates = tree.compatible_with(&PL011).filter(|node| node.is_enabled());
    candidates.filter_map(|node| pl011(node, "", None).ok()).next()
}

/// What the tree says of the PL011 `node`; `options` are those of `stdout-path`.
fn pl011<'a>(node: Node<'a>, options: &str, gic: Option<Node<'a>>) -> Result<UartNode, Fault<'a>> {
    let Some(reg) = node.reg(0)?.filter(|reg| reg.size >= 0x48) else {
        let remedy = "the UART's registers are needed (4 KiB)";
        return Err(Fault::new(node, "reg", Value::Missing, remedy));
    };
    let intid = match gic {
        Some(gic) => Interrupts::of(node, gic)?.get(0)?,
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

/// The node of the console, and the options that follow its name. Where `/chosen` names none it is the
/// first serial port, as on boards whose firmware leaves the choice to the command line.
fn stdout<'a>(top: &TopLevel<'a>) -> Result<Option<(Node<'a>, &'a str)>, Fault<'a>> {
    let alias = |name: &str| top.aliases.and_then(|aliases| alias(aliases, name));
    let named = ["stdout-path", "linux,stdout-path"].into_iter().find_map(|property| {
        let chosen = top.chosen.filter(|chosen| chosen.has(property))?;
        Some((chosen, property))
    });
    let Some((chosen, property)) = named else {
        let first = alias("serial0").and_then(|path| top.tree.node(path));
        return Ok(first.filter(|node| node.is_enabled()).map(|node| (node, "")));
    };
    let text = chosen.text(property)?.unwrap_or("");
    let (name, options) = text.split_once(':').unwrap_or((text, ""));
    let path = if name.starts_with('/') { Some(name) } else { alias(name) };
    match path.and_then(|path| top.tree.node(path)) {
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
