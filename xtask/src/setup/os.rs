//! Which operating system this is: `/etc/os-release` (freedesktop.org's os-release format).

use std::collections::HashMap;

/// The fields of `os-release` that matter here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Os {
    /// `ID`, such as `debian`; empty where nothing says so.
    pub id: String,
    /// `ID_LIKE`, split at blanks.
    pub like: Vec<String>,
    /// `VERSION_CODENAME`, such as `bookworm`.
    pub codename: String,
    /// `VERSION_ID`, such as `12`.
    pub version: String,
}

impl Os {
    /// Reads this machine's `/etc/os-release`.
    pub fn here() -> Self {
        let text = std::fs::read_to_string("/etc/os-release")
            .or_else(|_| std::fs::read_to_string("/usr/lib/os-release"))
            .unwrap_or_default();
        Self::parse(&text)
    }

    /// Parses the file's text.
    pub fn parse(text: &str) -> Self {
        let fields: HashMap<&str, String> = text
            .lines()
            .filter_map(|line| line.trim().split_once('='))
            .map(|(key, value)| (key, value.trim_matches(['"', '\'']).to_owned()))
            .collect();
        let get = |key| fields.get(key).cloned().unwrap_or_default();
        Self {
            id: get("ID"),
            like: get("ID_LIKE").split_whitespace().map(str::to_owned).collect(),
            codename: get("VERSION_CODENAME"),
            version: get("VERSION_ID"),
        }
    }

    /// Whether it is `id`, or made from it.
    pub fn is_like(&self, id: &str) -> bool {
        self.id == id || self.like.iter().any(|like| like == id)
    }

    /// The command that installs QEMU for arm64 where `apt` is not the way.
    pub fn qemu_install_hint(&self) -> &'static str {
        let hints = [
            ("fedora", "sudo dnf install qemu-system-aarch64"),
            ("rhel", "sudo dnf install qemu-kvm (and QEMU's aarch64 emulator from EPEL or from source)"),
            ("arch", "sudo pacman -S qemu-system-aarch64"),
            ("alpine", "sudo apk add qemu-system-aarch64"),
            ("suse", "sudo zypper install qemu-arm"),
            ("gentoo", "sudo QEMU_SOFTMMU_TARGETS=aarch64 emerge app-emulation/qemu"),
            ("nixos", "nix-shell -p qemu"),
            ("void", "sudo xbps-install qemu-system-aarch64"),
        ];
        match hints.iter().find(|(id, _)| self.is_like(id)) {
            Some((_, hint)) => hint,
            None if cfg!(target_os = "macos") => "brew install qemu",
            None => "install the package that has `qemu-system-aarch64` (often named qemu-system-arm)",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_and_its_kin_are_told_apart() {
        let os = Os::parse("ID=debian\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\n");
        assert_eq!((os.id.as_str(), os.version.as_str(), os.codename.as_str()), ("debian", "12", "bookworm"));
        assert!(os.is_like("debian") && !os.is_like("ubuntu"));
        let os = Os::parse("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\nnonsense\n");
        assert!(os.is_like("debian") && os.is_like("ubuntu"));
        assert_eq!(Os::parse(""), Os::default());
    }

    #[test]
    fn other_systems_get_their_own_command() {
        assert!(Os::parse("ID=fedora").qemu_install_hint().contains("dnf"));
        assert!(Os::parse("ID=manjaro\nID_LIKE=arch").qemu_install_hint().contains("pacman"));
        assert!(
            Os::parse("ID=opensuse-leap\nID_LIKE=\"suse opensuse\"").qemu_install_hint().contains("zypper")
        );
        assert!(Os::parse("ID=whatever").qemu_install_hint().contains("qemu-system-aarch64"));
    }
}
