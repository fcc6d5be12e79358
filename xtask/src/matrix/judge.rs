//! Whether a VM has booted, and as what.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::linux::Release;
use crate::qemu::capture::Captured;
use crate::report::records::Report;

/// What is known of a VM that has booted.
#[derive(Debug)]
pub struct Boot {
    /// Exits from its beginning to its end.
    pub exits: u64,
    /// Features of its CPUs, as its kernel lists them in `/proc/cpuinfo`.
    pub features: String,
}

/// The guest's record about itself (`odometer.about`).
#[derive(Debug, Deserialize)]
struct About {
    release: String,
    cpus: u32,
    page_kib: u64,
    complaints: u64,
    features: String,
}

/// Judges the VM `name`, which is to have booted this kernel on so many vCPUs.
///
/// # Errors
/// It hasn't, or something is not as it should be.
pub fn boot(captured: &Captured, name: &str, release: Release, vcpus: u32) -> Result<Boot> {
    let own = |kind: &str| captured.guests.iter().find(|(vm, record)| vm == name && record["kind"] == kind);
    let (_, about) = own("about").context("it hasn't said what it is: it didn't boot")?;
    let about = About::deserialize(about).with_context(|| format!("its record {about}"))?;
    let (series, _) = release.name().split_once('-').unwrap_or((release.name(), ""));
    ensure!(
        about.release.starts_with(&format!("{series}.")),
        "it runs Linux {}, not {series}",
        about.release
    );
    ensure!(about.cpus == vcpus, "{} of {vcpus} CPUs are online", about.cpus);
    ensure!(
        about.page_kib == release.page_kib(),
        "its pages have {} KiB, not {}",
        about.page_kib,
        release.page_kib()
    );
    ensure!(
        about.complaints == 0,
        "{} lines of its kernel's log are complaints; the log is on its console",
        about.complaints
    );
    own("end").context("it has not ended by itself")?;
    let report = Report::read(&captured.reports)?;
    let end = report.end.as_ref().context("the hypervisor's report has no `end` record")?;
    ensure!(end.failed == 0, "{} VMs were stopped by the hypervisor", end.failed);
    let faults = report.inconsistencies();
    ensure!(faults.is_empty(), "the report does not add up: {}", faults.join("; "));
    let tally = report.vms.get(name).context("the report doesn't know it")?;
    Ok(Boot { exits: tally.exits.total, features: about.features })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABOUT: &str = r#"linux-2| @guest {"schema":1,"kind":"about","release":"6.12.9-x","cpus":2,"page_kib":16,"complaints":0,"features":"fp"}"#;

    #[test]
    fn what_is_not_as_it_should_be_is_said() {
        let error = |log: &str, release, vcpus| {
            let captured = Captured::from_log(log).unwrap();
            format!("{:#}", boot(&captured, "linux-2", release, vcpus).unwrap_err())
        };
        assert!(error("", Release::Pages16k612, 2).contains("didn't boot"));
        assert!(error(ABOUT, Release::Cloud61, 2).contains("6.12.9-x, not 6.1"));
        assert!(error(ABOUT, Release::Cloud612, 2).contains("16 KiB, not 4"));
        assert!(error(ABOUT, Release::Pages16k612, 4).contains("2 of 4 CPUs"));
        assert!(error(ABOUT, Release::Pages16k612, 2).contains("not ended"));
        let complaint = ABOUT.replace("\"complaints\":0", "\"complaints\":3");
        assert!(error(&complaint, Release::Pages16k612, 2).contains("3 lines"));
        let other = ABOUT.replace("linux-2|", "linux-4|");
        assert!(error(&other, Release::Pages16k612, 2).contains("didn't boot"));
    }
}
