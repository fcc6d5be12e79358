//! Which of Debian's arm64 kernels a guest boots.

use std::fmt;

use anyhow::{Result, bail};
use clap::ValueEnum;

/// Debian's arm64 kernels: those of Debian 12, and those that `bookworm-backports` has for it. Debian builds kernels for pages of
/// 4 and of 16 KiB; it has none for 64 KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub enum Release {
    /// Linux 6.1 for virtual machines
    #[default]
    #[value(name = "6.1-cloud", alias = "cloud")]
    Cloud61,
    /// Linux 6.1 for all machines
    #[value(name = "6.1-standard", alias = "standard")]
    Standard61,
    /// Linux 6.1 with PREEMPT_RT
    #[value(name = "6.1-rt", alias = "rt")]
    Rt61,
    /// Linux 6.12 for virtual machines
    #[value(name = "6.12-cloud")]
    Cloud612,
    /// Linux 6.12 for all machines
    #[value(name = "6.12-standard", alias = "6.12")]
    Standard612,
    /// Linux 6.12 with PREEMPT_RT
    #[value(name = "6.12-rt")]
    Rt612,
    /// Linux 6.12 with pages of 16 KiB
    #[value(name = "6.12-16k", alias = "16k")]
    Pages16k612,
}

impl Release {
    /// All of them, the default first.
    pub const ALL: [Self; 7] = [
        Self::Cloud61,
        Self::Standard61,
        Self::Rt61,
        Self::Cloud612,
        Self::Standard612,
        Self::Rt612,
        Self::Pages16k612,
    ];

    /// Its name on command lines, in scenarios and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cloud61 => "6.1-cloud",
            Self::Standard61 => "6.1-standard",
            Self::Rt61 => "6.1-rt",
            Self::Cloud612 => "6.12-cloud",
            Self::Standard612 => "6.12-standard",
            Self::Rt612 => "6.12-rt",
            Self::Pages16k612 => "6.12-16k",
        }
    }

    /// The package that depends on the newest kernel of its kind.
    pub const fn package(self) -> &'static str {
        match self {
            Self::Cloud61 | Self::Cloud612 => "linux-image-cloud-arm64",
            Self::Standard61 | Self::Standard612 => "linux-image-arm64",
            Self::Rt61 | Self::Rt612 => "linux-image-rt-arm64",
            Self::Pages16k612 => "linux-image-arm64-16k",
        }
    }

    /// The suites of Debian's archive that it comes from.
    pub const fn suites(self) -> &'static [&'static str] {
        match self {
            Self::Cloud61 | Self::Standard61 | Self::Rt61 => {
                &["bookworm", "bookworm-updates", "bookworm-security"]
            }
            Self::Cloud612 | Self::Standard612 | Self::Rt612 | Self::Pages16k612 => &["bookworm-backports"],
        }
    }

    /// Its pages in KiB.
    pub const fn page_kib(self) -> u64 {
        match self {
            Self::Pages16k612 => 16,
            _ => 4,
        }
    }

    /// The kernel that a scenario means by `linux` or `linux:NAME`; `None` for what names a file.
    ///
    /// # Errors
    /// A name that no kernel has.
    pub fn of_scenario(kernel: &str) -> Result<Option<Self>> {
        let Some(rest) = kernel.strip_prefix("linux") else { return Ok(None) };
        if rest.is_empty() {
            return Ok(Some(Self::default()));
        }
        let Some(name) = rest.strip_prefix(':') else { return Ok(None) };
        match Self::from_str(name, false) {
            Ok(release) => Ok(Some(release)),
            Err(_) => {
                bail!("there is no kernel {name:?}; there are {}", Self::ALL.map(Self::name).join(", "))
            }
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        for release in Release::ALL {
            assert_eq!(Release::from_str(release.name(), false), Ok(release));
            assert_eq!(Release::of_scenario(&format!("linux:{release}")).unwrap(), Some(release));
        }
        assert_eq!(Release::ALL.len(), Release::value_variants().len());
    }

    #[test]
    fn a_scenario_names_a_kernel_or_a_file() {
        assert_eq!(Release::of_scenario("linux").unwrap(), Some(Release::Cloud61));
        assert_eq!(Release::of_scenario("linux:rt").unwrap(), Some(Release::Rt61));
        assert_eq!(Release::of_scenario("linux-6.1.Image").unwrap(), None);
        assert_eq!(Release::of_scenario("vmlinuz").unwrap(), None);
        let error = Release::of_scenario("linux:5.10").unwrap_err().to_string();
        assert!(error.contains("5.10") && error.contains("6.12-16k"), "{error}");
    }
}
