//! The harness with jobs that run nothing.

use std::path::Path;

use anyhow::bail;

use super::*;
use crate::qemu::Boot;
use crate::scenario;

fn about() -> About {
    let row = |name: &str| Variant { name: name.into(), ..Variant::default() };
    About {
        bench: "test",
        question: "?",
        quantities: vec![count("n", "n")],
        variants: vec![row("one"), row("two")],
        shares: Vec::new(),
        notes: Vec::new(),
    }
}

/// Begins an experiment whose results go into `directory`.
fn with(directory: &Path, line: &str, test: impl FnOnce(Experiment<'_>, &Path)) {
    let file = directory.join("r.json");
    let image = directory.join("image.bin");
    std::fs::write(&image, b"image").unwrap();
    let program =
        crate::image::Program { elf: image.clone(), image: image.clone(), file_bytes: 5, memory_bytes: 5 };
    let programs = Programs { odometer: program.clone(), guest: program };
    let boot = Boot { kernel: image, initrd: None, append: String::new(), virtualization: true };
    let machine = scenario::Machine::default();
    let launch = Launch {
        program: "qemu".into(),
        version: (10, 0, 2),
        machine,
        memory: 1 << 30,
        boot,
        typed: Vec::new(),
    };
    let args = BenchArgs { json: Some(file.clone()), ..super::super::args(line) };
    test(Experiment::begin(&args, about(), &programs, &launch).unwrap(), &file);
}

/// What a run of `name` gives that gives one number.
fn one(name: &str, value: f64) -> Measured {
    Measured {
        variant: name.into(),
        values: BTreeMap::from([("n".to_owned(), value)]),
        ..Measured::default()
    }
}

#[test]
fn trials_come_in_turn_after_those_that_warm_up() {
    let directory = tempfile::tempdir().unwrap();
    with(directory.path(), "syscall --warmup 1", |mut experiment, file| {
        let order = Mutex::new(Vec::new());
        let more = experiment.measure(
            &["one", "two"],
            |name| (*name).to_owned(),
            1,
            2,
            |name, run, _| {
                order.lock().unwrap().push(format!("{name} {}", run.trial));
                Ok((vec![one(name, f64::from(run.trial))], (*name).to_owned()))
            },
        );
        assert_eq!(more.unwrap(), ["one", "two", "one", "two"], "warming up gives nothing");
        assert_eq!(order.into_inner().unwrap(), ["one 1", "two 1", "one 1", "two 1", "one 2", "two 2"]);
        let results = experiment.end().unwrap();
        assert!(results.complete && results.failure.is_none());
        assert_eq!(results.sample("one", "n").values, [1.0, 2.0]);
        assert_eq!(results.trials.iter().filter(|trial| trial.warmup).count(), 2);
        assert_eq!(Results::read(file).unwrap(), results);
    });
}

#[test]
fn trials_that_end_in_any_order_are_kept_in_theirs() {
    let directory = tempfile::tempdir().unwrap();
    with(directory.path(), "syscall", |mut experiment, _| {
        for _ in 0..2 {
            experiment
                .measure(
                    &["one", "two"],
                    |name| (*name).to_owned(),
                    2,
                    4,
                    |name, run, _| {
                        if *name == "one" {
                            std::thread::sleep(Duration::from_millis(5));
                        }
                        Ok((vec![one(name, f64::from(run.trial))], ()))
                    },
                )
                .unwrap();
        }
        let found: Vec<String> = experiment
            .results
            .trials
            .iter()
            .map(|trial| format!("{}{}", trial.variant, trial.trial))
            .collect();
        let once = "one1 two1 one2 two2 one3 two3 one4 two4";
        assert_eq!(found.join(" "), format!("{once} {once}"));
    });
}

#[test]
fn what_ran_before_a_failure_is_in_the_file() {
    let directory = tempfile::tempdir().unwrap();
    with(directory.path(), "syscall", |mut experiment, file| {
        let error = experiment.measure(
            &["one", "two"],
            |name| (*name).to_owned(),
            1,
            3,
            |name, run, _| {
                if run.trial == 2 {
                    bail!("nothing came on the console for 120 s");
                }
                Ok((vec![one(name, 1.0)], ()))
            },
        );
        let error = format!("{:#}", error.map(|_: Vec<()>| ()).unwrap_err());
        assert_eq!(error, "one, trial 2: nothing came on the console for 120 s");
        let results = Results::read(file).unwrap();
        assert_eq!(results.trials.len(), 2);
        assert_eq!((results.complete, results.failure), (false, Some(error)));
    });
}

#[test]
fn logs_have_plain_names() {
    assert_eq!(log_name("vmid", "setup 2, clear [A], trial 1"), "vmid-setup-2-clear-A-trial-1.log");
}
