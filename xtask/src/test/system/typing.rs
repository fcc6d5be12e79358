//! Someone sits at a guest's console: what is pasted arrives whole, and Ctrl-C reaches the guest.

use super::case::Case;
use super::cases::scenario;
use super::expect::says;
use super::linux::linux_case;
use crate::qemu::Typed;

/// 64 lines of 64 bytes: 4 KiB, each line another.
const PASTED: &str = {
    const BYTES: [u8; 4096] = {
        let mut bytes = [0; 4096];
        let mut at = 0;
        while at < bytes.len() {
            bytes[at] = if at % 64 == 63 { b'\n' } else { b'0' + ((at / 64 + at % 64) % 64) as u8 };
            at += 1;
        }
        bytes
    };
    match str::from_utf8(&BYTES) {
        Ok(text) => text,
        Err(_) => "",
    }
};

/// One Linux guest, at whose shell is typed. The shell doesn't echo, so that a line is the answer and not the question.
pub fn case() -> Case {
    let script = "stty -echo; echo ready; setsid cttyhack sh";
    let linux = format!(
        "[[vm]]\nname = \"linux\"\nvcpus = 2\nmemory = \"96M\"\nkernel = \"vmlinuz\"\ninitrd = \"initramfs\"\n\
         bootargs = 'console=ttyAMA0 quiet cma=0 cryptomgr.notests odometer.exec=\"{script}\"'\n"
    );
    let mut case = linux_case("linux-console", scenario("cpus = 2", "", &[linux]));
    case.typed = vec![
        Typed {
            after: "ready",
            keys: "echo; echo paste; head -c 4096 > /tmp/pasted; echo; md5sum /tmp/pasted; echo pasted\n",
        },
        Typed { after: "paste", keys: PASTED },
        Typed {
            after: "pasted",
            keys: "sh -c 'trap \"echo; echo interrupted; exit\" INT; echo; echo sleeps; while :; do sleep 1; done'\n",
        },
        Typed { after: "sleeps", keys: "\x03" },
        Typed { after: "interrupted", keys: "echo; exit\n" },
    ];
    case.expect(says(&[MD5, "/tmp/pasted"])).expect(says(&["interrupted"]))
}

/// What `md5sum` says of [`PASTED`].
const MD5: &str = "8890137e6fca58894ff6715c4ba7c852";
