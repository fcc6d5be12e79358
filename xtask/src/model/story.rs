//! A counterexample as a list of steps that can be read: who does what, and what has changed by it.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::value::Value;

/// A state of a counterexample and the action that led to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    action: String,
    state: BTreeMap<String, Value>,
}

/// What each action of the modules is, for a CPU that is called `{c}` and its VM `{v}`. An action without an entry is shown by
/// its name; a test sees to it that there is none.
const ACTIONS: &[(&str, &str)] = &[
    ("Pick", "{c} takes up {v}"),
    ("ReadId", "{c} reads {v}'s id"),
    ("ReadGeneration", "{c} compares it with the generation that it sees"),
    ("ReadActive", "{c} reads its active slot"),
    ("Exchange", "{c} exchanges its active slot for the id, if it is as it was read"),
    ("Lock", "{c} gets the lock"),
    ("Renew", "{c} looks for an id for {v}"),
    ("Take", "{c} takes a free VMID"),
    ("RollGeneration", "{c} begins a rollover: next generation, empty bitmap"),
    ("RollSlot", "{c} exchanges an active slot for 0"),
    ("RollWait", "{c} waits until all that were in guests have left them"),
    ("RollPublish", "{c} waits until that is visible (dsb ishst)"),
    ("RollFlush", "{c}'s tlbi alle1is reaches a CPU"),
    ("StoreNewId", "{c} stores {v}'s id"),
    ("PublishId", "{c} waits until the id is visible (dsb ishst)"),
    ("StoreActive", "{c} stores its active slot and gives the lock back"),
    ("FlushHere", "{c} removes what is left of the VMID in its TLB"),
    ("Bind", "{c} writes VTTBR_EL2 and enters {v}"),
    ("Leave", "{c} leaves the guest"),
    ("ScheduleOut", "{c} schedules {v} out"),
    ("ParkLate", "{c}'s walker learns that VTTBR_EL2 is parked"),
    ("Fill", "{c}'s walker fills its TLB"),
    ("GenerationArrives", "the new generation becomes visible to a CPU"),
    ("EditBegin", "{c} handles an exit in which tables change"),
    ("EditChange", "{c} changes the tables (and dsb ishst)"),
    ("EditRead", "{c} reads the VMID for the TLBI"),
    ("EditLoad", "{c} puts the VMID into VTTBR_EL2"),
    ("EditFlush", "{c}'s tlbi by VMID reaches a CPU"),
    ("EditEnd", "{c} is done with the change and puts VTTBR_EL2 back"),
    ("ReadSlot", "{c} reads its active slot"),
    ("ReadKnown", "{c} looks whether it is admitted to that"),
    ("SayOutFirst", "{c} says that it has left its guest"),
    ("SayOut", "{c} says that it has left its guest"),
    ("Shortage", "{c} exchanges an active slot for 0: the first shortage"),
    ("RevokeKnown", "{c} takes a VMID away: a CPU's entry of it becomes invalid"),
    ("RevokeSlot", "{c} looks into a CPU's active slot, and writes it anew"),
    ("Revoked", "{c} ends the tenure"),
    ("RevokeFlush", "{c}'s tlbi vmalls12e1is reaches a CPU"),
    ("Admit", "{c} is admitted, and takes note of what is stale in its TLB"),
    ("EndBegin", "{c} ends {v}"),
    ("EndLock", "{c} gets the lock and takes {v}'s id away"),
    ("EndSlot", "{c} takes it out of an active slot"),
    ("EndFlush", "{c}'s tlbi vmalls12e1is reaches a CPU"),
    ("EndFree", "{c} frees the VMID and gives the lock back"),
    ("Begin", "a new VM begins in an ended one's place"),
];

/// The variables whose changes are shown, and their names for people; `{k}` is the CPU, VM or VMID.
const SHOWN: &[(&str, &str)] = &[
    ("gen", "generation"),
    ("seen", "generation seen by CPU {k}"),
    ("cell", "id of VM {k}"),
    ("active", "slot of CPU {k}"),
    ("reserved", "reserved for CPU {k}"),
    ("owner", "owner of {k}"),
    ("used", "bits set"),
    ("used", "CPUs admitted to {k}"),
    ("stale", "stale entries of {k} on"),
    ("known", "CPU {k} is admitted to"),
    ("vttbr", "VTTBR of CPU {k}"),
    ("cached", "TLB of CPU {k}"),
    ("behind", "ids not seen yet"),
    ("rid", "read by CPU {k}"),
];

impl Step {
    /// Reads a state as TLC prints it: `7: <Pick line 1, col 2 to line 3, col 4 of module M>` and then `/\ name = value`s.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(text: &str) -> Result<Self> {
        let (head, rest) = text.split_once('\n').unwrap_or((text, ""));
        let (_, label) = head.split_once('<').context("a state without an action")?;
        let action = label.split([' ', '>']).next().unwrap_or_default().to_owned();
        let mut state = BTreeMap::new();
        for part in rest.split("/\\ ").map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once(" = ").context("a variable without a value")?;
            state.insert(name.to_owned(), Value::parse(value).with_context(|| format!("in {part:?}"))?);
        }
        Ok(Self { action, state })
    }

    fn variable(&self, name: &str, key: &str) -> Option<&Value> {
        self.state.get(name)?.at(key)
    }
}

/// The whole counterexample, a line for each step.
pub fn tell(steps: &[Step]) -> Vec<String> {
    let lines = steps.windows(2).enumerate();
    lines.map(|(index, pair)| format!("{:>3}. {}", index + 1, step(&pair[0], &pair[1]))).collect()
}

fn step(before: &Step, after: &Step) -> String {
    let cpu = actor(before, after);
    let vm = [after, before].into_iter().find_map(|step| {
        let vm = step.variable("vm", cpu.as_deref()?)?.word();
        (vm != "None").then(|| format!("VM {vm}"))
    });
    let known = ACTIONS.iter().find(|(name, _)| *name == after.action);
    let sentence = known.map_or(after.action.as_str(), |(_, sentence)| sentence);
    let sentence = sentence
        .replace("{c}", &cpu.map_or("a CPU".to_owned(), |cpu| format!("CPU {cpu}")))
        .replace("{v}", vm.as_deref().unwrap_or("a VM"));
    let changes = changes(before, after);
    if changes.is_empty() { sentence } else { format!("{sentence}: {}", changes.join("; ")) }
}

/// The CPU whose step it is: the one that is elsewhere in its program afterwards, or the one that is in the middle of something
/// that takes several steps.
fn actor(before: &Step, after: &Step) -> Option<String> {
    let moved = differing(before, after, "pc").next().map(|(key, _, _)| key.to_owned());
    let changed = |name| differing(before, after, name).next().map(|(key, _, _)| key.to_owned());
    match after.action.as_str() {
        "Begin" => None,
        "GenerationArrives" => changed("seen"),
        "Fill" => changed("cached"),
        action if action.starts_with("Edit") => moved.or_else(|| {
            let edits = before.state.get("pc")?.pairs().find(|(_, pc)| pc.word() == "edit")?;
            Some(edits.0.to_owned())
        }),
        _ => moved.or_else(|| Some(before.state.get("lock")?.word().to_owned())),
    }
}

/// The keys of a function at which two states differ.
fn differing<'a>(
    before: &'a Step,
    after: &'a Step,
    name: &str,
) -> impl Iterator<Item = (&'a str, &'a Value, &'a Value)> {
    let (old, new) = (before.state.get(name), after.state.get(name));
    let pairs = new.into_iter().flat_map(|new| new.pairs());
    pairs.filter_map(move |(key, new)| {
        let old = old?.at(key)?;
        (old != new).then_some((key, old, new))
    })
}

fn changes(before: &Step, after: &Step) -> Vec<String> {
    let mut changes = Vec::new();
    for (name, label) in SHOWN {
        let (Some(old), Some(new)) = (before.state.get(*name), after.state.get(*name)) else { continue };
        // Modules differ in whether a variable is one for all or one for each.
        if old == new || label.contains("{k}") != matches!(new, Value::Map(_)) {
            continue;
        }
        let mut say = |label: &str, old: &Value, new: &Value| {
            // What a register is set back to after use tells nothing.
            if *name != "rid" || is_live(new) {
                changes.push(format!("{label} {} → {}", shown(name, old), shown(name, new)));
            }
        };
        if let Value::Map(_) = new {
            differing(before, after, name)
                .for_each(|(key, old, new)| say(&label.replace("{k}", key), old, new));
        } else {
            say(label, old, new);
        }
    }
    changes
}

fn is_live(id: &Value) -> bool {
    id.elements().last().is_some_and(|vmid| vmid.word() != "None")
}

/// A value as a person would write it.
fn shown(name: &str, value: &Value) -> String {
    let elements = value.elements();
    match (name, value) {
        // An id: generation and VMID.
        ("cell" | "active" | "reserved" | "rid" | "owner", Value::Tuple(_)) => {
            match (elements[0].word(), is_live(value)) {
                (generation, true) => format!("{}:{generation}", elements[1].word()),
                ("0", false) => "0".to_owned(),
                ("1", false) => "invalid".to_owned(),
                (_, false) => "away".to_owned(),
            }
        }
        ("vttbr", Value::Tuple(_)) => match (elements[0].word(), elements[1].word()) {
            ("None", "None") => "parked".to_owned(),
            ("None", vmid) => format!("parked with {vmid}"),
            (vm, vmid) => format!("VM {vm}'s tables with {vmid}"),
        },
        ("cached", Value::Set(entries)) => {
            let entry = |entry: &Value| match entry.elements() {
                [vm, vmid, old] if old.word() == "TRUE" => format!("{vm} under {vmid}, from the old table"),
                [vm, vmid, ..] => format!("{vm} under {vmid}"),
                _ => entry.to_string(),
            };
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        ("behind", Value::Set(pairs)) => {
            let pair = |pair: &Value| match pair.elements() {
                [cpu, vm] => format!("VM {vm}'s by CPU {cpu}"),
                _ => pair.to_string(),
            };
            format!("{{{}}}", pairs.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(head: &str, lines: &str) -> Step {
        Step::parse(&format!("{head}\n{lines}\n")).expect("a state")
    }

    #[test]
    fn steps_say_who_does_what() {
        let first = state(
            "1: <Initial predicate>",
            "/\\ pc = (0 :> \"idle\" @@ 1 :> \"exchange\")\n/\\ vm = (0 :> None @@ 1 :> B)\n/\\ lock = None\n\
             /\\ active = (0 :> <<1, None>> @@ 1 :> <<0, None>>)\n/\\ rid = (0 :> <<0, None>> @@ 1 :> <<1, v2>>)",
        );
        let second = state(
            "2: <Exchange line 1, col 2 to line 3, col 4 of module M>",
            "/\\ pc = (0 :> \"idle\" @@ 1 :> \"bind\")\n/\\ vm = (0 :> None @@ 1 :> B)\n/\\ lock = None\n\
             /\\ active = (0 :> <<1, None>> @@ 1 :> <<1, v2>>)\n/\\ rid = (0 :> <<0, None>> @@ 1 :> <<0, None>>)",
        );
        assert_eq!(
            tell(&[first, second]),
            [
                "  1. CPU 1 exchanges its active slot for the id, if it is as it was read: slot of CPU 1 0 → v2:1"
            ]
        );
    }

    #[test]
    fn values_are_written_for_people() {
        for (name, text, expected) in [
            ("cell", "<<0, None>>", "0"),
            ("active", "<<1, None>>", "invalid"),
            ("active", "<<2, None>>", "away"),
            ("reserved", "<<3, v1>>", "v1:3"),
            ("vttbr", "<<None, None>>", "parked"),
            ("vttbr", "<<None, v2>>", "parked with v2"),
            ("vttbr", "<<A, v2>>", "VM A's tables with v2"),
            ("cached", "{<<A, v1, FALSE>>, <<B, v2, TRUE>>}", "{A under v1, B under v2, from the old table}"),
            ("behind", "{<<0, A>>}", "{VM A's by CPU 0}"),
            ("used", "{v1}", "{v1}"),
        ] {
            assert_eq!(shown(name, &Value::parse(text).expect("a value")), expected);
        }
    }

    /// Each action of the modules has a sentence, and each sentence an action.
    #[test]
    fn every_action_has_a_sentence() {
        let text: String = super::super::modules::MODULES.iter().map(|module| module.text).collect();
        for (name, _) in ACTIONS {
            let defined = |line: &str| line.starts_with(&format!("{name}(")) && line.contains("==");
            assert!(text.lines().any(defined), "no module has the action {name}");
        }
        // An action says what changes, so that its definition has a primed variable or UNCHANGED.
        for definition in text.split("\n\n") {
            let definition =
                definition.lines().find(|line| line.ends_with("==")).map(|line| (line, definition));
            let Some((line, body)) = definition else { continue };
            let name = line.split(['(', ' ']).next().unwrap_or_default();
            if body.contains("\n    /\\ UNCHANGED <<") {
                assert!(ACTIONS.iter().any(|(known, _)| *known == name), "the action {name} has no sentence");
            }
        }
    }
}
