//! Tests of the file, and results for tests of what is made of them.

use super::*;

/// Results with these rows and values; the first row is the others' base.
pub fn results(rows: &[(&str, &[f64])]) -> Results {
    let published = |name: &str| match name {
        "off" => vec![Published { label: "us".into(), value: 0.0792 }],
        "on" => vec![Published { label: "us".into(), value: 0.2025 }],
        _ => Vec::new(),
    };
    let first = rows[0].0;
    let variants = rows.iter().map(|(name, _)| Variant {
        name: (*name).into(),
        base: (*name != first).then(|| first.into()),
        published: published(name),
        ..Variant::default()
    });
    let trials = rows.iter().flat_map(|(name, values)| {
        values.iter().zip(1..).map(|(value, trial)| Trial {
            variant: (*name).into(),
            trial,
            values: BTreeMap::from([("cost".to_owned(), *value)]),
            ..Trial::default()
        })
    });
    Results {
        schema: SCHEMA,
        bench: "test".into(),
        question: "What does it cost?".into(),
        command: vec!["syscall".into()],
        started: 1_700_000_000,
        odometer: Odometer { image: "0123456789abcdef".repeat(4), ..Odometer::default() },
        machine: Machine { emulated: true, qemu: "10.0.2".into(), cpu: "max".into(), ..Machine::default() },
        host: host::Host::default(),
        quantities: vec![Quantity {
            key: "cost".into(),
            label: "instructions a call".into(),
            digits: 1,
            emulated: false,
        }],
        variants: variants.collect(),
        trials: trials.collect(),
        shares: Vec::new(),
        notes: Vec::new(),
        complete: true,
        failure: None,
    }
}

#[test]
fn what_is_written_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("r.json");
    let results = results(&[("off", &[1.5, 2.5]), ("on", &[3.0])]);
    results.write(&file).unwrap();
    assert_eq!(Results::read(&file).unwrap(), results);
}

#[test]
fn warming_up_is_in_no_mean() {
    let mut results = results(&[("off", &[1.0, 2.0])]);
    results.trials[0].warmup = true;
    assert_eq!(results.sample("off", "cost").values, [2.0]);
    assert!(results.sample("off", "another").values.is_empty());
}

#[test]
fn another_schema_is_refused_with_what_to_do() {
    let parse = |text: &str| format!("{:#}", Results::parse(text).unwrap_err());
    assert!(parse("{\"schema\": 1, \"bench\": \"vmid\"}").contains("has schema 1; this xtask reads 2"));
    assert!(parse("{}").contains("no `schema`"));
    assert!(parse("boot").contains("not JSON"));
    assert!(parse("{\"schema\": 2}").contains("not a result of a bench"));
    let spoilt = |spoil: &dyn Fn(&mut Results)| {
        let mut results = results(&[("off", &[1.0]), ("on", &[2.0])]);
        spoil(&mut results);
        parse(&serde_json::to_string(&results).unwrap())
    };
    assert!(spoilt(&|results| results.trials[0].variant = "gone".into()).contains("no variant `gone`"));
    assert!(spoilt(&|results| results.variants[1].base = Some("lost".into())).contains("no variant `lost`"));
    assert!(spoilt(&|results| results.variants[1].name = "off".into()).contains("`off` is there twice"));
    assert!(spoilt(&|results| results.quantities[0].digits = 70_000).contains("70000 digits"));
    assert!(spoilt(&|results| results.started = 1 << 63).contains("started"));
    assert!(spoilt(&|results| results.command = vec!["--repeat".into()]).contains("--repeat"));
}
