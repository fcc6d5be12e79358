//! Whether the cases can run at all.

use std::sync::Arc;

use super::*;
use crate::scenario::{Kernel, Scenario};

/// A wrong key in a scenario would else be found only after all images are built.
#[test]
fn every_scenario_is_a_valid_one() {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, bytes) in FILES {
        std::fs::write(directory.path().join(name), bytes).expect("written");
    }
    std::fs::write(directory.path().join(crate::test::system::bug::FILE), [0; 64]).expect("written");
    std::fs::write(directory.path().join(linux::PERF), [0; 64]).expect("written");
    for name in ["vmlinuz", "initramfs"] {
        std::fs::write(directory.path().join(name), [0; 64]).expect("written");
        for release in crate::linux::Release::ALL {
            let file = directory.path().join(format!("{name}-{release}"));
            std::fs::write(file, [0; 64]).expect("written");
        }
    }
    let file = directory.path().join("scenario.toml");
    let guest = || -> anyhow::Result<Arc<Kernel>> { Ok(Arc::new(crate::scenario::kernel::parse(&[0; 64])?)) };
    for case in all() {
        let Boots::Scenario(text) = &case.boots else { continue };
        std::fs::write(&file, text).expect("written");
        if let Err(error) = Scenario::load(&file, &guest) {
            panic!("{}: {error:#}\n{text}", case.name);
        }
    }
}

#[test]
fn every_case_checks_something() {
    for case in all() {
        assert!(!case.checks.is_empty(), "{}", case.name);
    }
}
