//! The machine's own apt sources: where its Debian mirror is.
//!
//! Both formats of sources.list(5): one-line entries (`*.list`) and deb822 stanzas (`*.sources`). Only the mirror's
//! address is taken from them; lists, suites and architectures of our own stand in a private configuration.

use std::path::Path;

/// One source of binary packages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// The archive's addresses, without a slash at the end.
    pub uris: Vec<String>,
    /// Suites such as `bookworm`, `bookworm-updates`.
    pub suites: Vec<String>,
    /// Components such as `main`.
    pub components: Vec<String>,
}

/// Reads all sources of this machine; files that can't be read are passed over.
pub fn here() -> Vec<Source> {
    read(Path::new("/etc/apt"))
}

/// Reads the sources under a directory laid out as `/etc/apt`, in the order of file names.
pub fn read(etc: &Path) -> Vec<Source> {
    let mut files = vec![etc.join("sources.list")];
    let parts = std::fs::read_dir(etc.join("sources.list.d")).into_iter().flatten().flatten();
    let mut parts: Vec<_> = parts.map(|entry| entry.path()).collect();
    parts.sort();
    files.extend(parts);
    let mut sources = Vec::new();
    for file in files {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        match file.extension().and_then(|e| e.to_str()) {
            Some("list") => sources.extend(parse_list(&text)),
            Some("sources") => sources.extend(parse_deb822(&text)),
            _ => {}
        }
    }
    sources
}

/// Parses one-line entries: `deb [options] uri suite component...`.
pub fn parse_list(text: &str) -> Vec<Source> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Source> {
    let line = line.split('#').next()?.trim();
    let rest = line.strip_prefix("deb").filter(|rest| rest.starts_with([' ', '\t']))?.trim_start();
    let rest = match rest.strip_prefix('[') {
        Some(options) => options.split_once(']')?.1,
        None => rest,
    };
    let mut words = rest.split_whitespace();
    let uri = words.next()?.trim_end_matches('/').to_owned();
    let suite = words.next()?.to_owned();
    Some(Source { uris: vec![uri], suites: vec![suite], components: words.map(str::to_owned).collect() })
}

/// Parses deb822 stanzas; `Enabled: no` and stanzas of source packages only are left out.
pub fn parse_deb822(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut stanza: Vec<(String, String)> = Vec::new();
    for line in text.lines().chain([""]) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            sources.extend(from_stanza(&stanza));
            stanza.clear();
        } else if line.starts_with([' ', '\t']) {
            // A continuation of the field above.
            if let Some((_, value)) = stanza.last_mut() {
                value.push(' ');
                value.push_str(line.trim());
            }
        } else if let Some((key, value)) = line.split_once(':') {
            stanza.push((key.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    sources
}

fn from_stanza(stanza: &[(String, String)]) -> Option<Source> {
    let words = |key: &str| -> Vec<String> {
        let fields = stanza.iter().filter(|(name, _)| name == key);
        fields.flat_map(|(_, value)| value.split_whitespace()).map(str::to_owned).collect()
    };
    let disabled = words("enabled").iter().any(|v| matches!(v.as_str(), "no" | "false" | "off" | "0"));
    if disabled || !words("types").iter().any(|t| t == "deb") {
        return None;
    }
    let uris = words("uris").iter().map(|uri| uri.trim_end_matches('/').to_owned()).collect();
    Some(Source { uris, suites: words("suites"), components: words("components") })
}

/// The address of the archive that has `suite`, with component `main`, over http or https.
pub fn mirror_of(sources: &[Source], suite: &str) -> Option<String> {
    let has = |source: &&Source| {
        source.suites.iter().any(|s| s == suite) && source.components.iter().any(|c| c == "main")
    };
    let mut uris = sources.iter().filter(has).flat_map(|source| &source.uris);
    uris.find(|uri| uri.starts_with("http://") || uri.starts_with("https://")).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEB822: &str = "\
# modern
Types: deb deb-src
URIs: http://mirror.example/debian/
Suites: bookworm bookworm-updates
Components: main
 non-free-firmware
# a comment within
Signed-By: /usr/share/keyrings/k.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main

Types: deb-src
URIs: http://sources.example/debian
Suites: bookworm
Components: main

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm-backports
Components: main
";

    #[test]
    fn deb822_stanzas_with_continuations_and_comments() {
        let sources = parse_deb822(DEB822);
        assert_eq!(sources.len(), 2);
        assert_eq!(sources[0].uris, ["http://mirror.example/debian"]);
        assert_eq!(sources[0].components, ["main", "non-free-firmware"]);
        assert_eq!(mirror_of(&sources, "bookworm").as_deref(), Some("http://mirror.example/debian"));
        let security = mirror_of(&sources, "bookworm-security");
        assert_eq!(security.as_deref(), Some("http://mirror.example/debian-security"));
        assert_eq!(mirror_of(&sources, "bookworm-backports"), None);
    }

    #[test]
    fn one_line_entries_with_options() {
        let text = "deb cdrom:[Debian 12]/ bookworm main\n\
                    # deb http://commented.example/debian bookworm main\n\
                    deb-src http://sources.example/debian bookworm main\n\
                    deb [arch=amd64 signed-by=/k.gpg] https://m.example/debian/ bookworm main contrib # end\n\
                    deb\tftp://f.example/debian trixie main\n\
                    deb http://incomplete.example\n\
                    debug nonsense here\n";
        let sources = parse_list(text);
        assert_eq!(mirror_of(&sources, "bookworm").as_deref(), Some("https://m.example/debian"));
        assert_eq!(mirror_of(&sources, "trixie"), None, "only http and https will do");
        assert_eq!(mirror_of(&sources, "sid"), None);
    }

    #[test]
    fn a_source_without_main_is_no_mirror() {
        let sources = parse_list("deb http://third.example/apt bookworm stable");
        assert_eq!(mirror_of(&sources, "bookworm"), None);
    }

    #[test]
    fn files_are_read_by_their_extension() {
        let etc = tempfile::tempdir().expect("a temporary directory");
        let parts = etc.path().join("sources.list.d");
        std::fs::create_dir(&parts).expect("created");
        std::fs::write(parts.join("debian.sources"), DEB822).expect("written");
        std::fs::write(parts.join("x.sources.disabled"), DEB822.replace("mirror", "wrong")).expect("written");
        std::fs::write(etc.path().join("sources.list"), "deb http://first.example/debian sid main")
            .expect("written");
        let sources = read(etc.path());
        assert_eq!(sources.len(), 3);
        assert_eq!(sources[0].uris, ["http://first.example/debian"]);
        assert!(read(Path::new("/nonexistent")).is_empty());
    }
}
