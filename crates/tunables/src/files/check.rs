//! Checks of a policy's files: by the controller before a node gets them, and again by what writes them.

use api::node_policy::{CONTENT_MAX, FileMode};
use vcn::printable;

use crate::files::contents;
use crate::files::folders::{Place, place};
use crate::refusal::Refusal;

const MODE: Refusal =
    Refusal { reason: "the mode is neither 0644, 0640 nor 0600", next_step: "Leave the mode out: 0644 applies." };
const TEXT: Refusal = Refusal {
    reason: "the content is not lines of printable text, each with its line end",
    next_step: "Write lines of text; tabs are permitted, other control characters are not.",
};
const LENGTH: Refusal = Refusal {
    reason: "the content has more than 8192 bytes",
    next_step: "Shorten it, or use the node pool's cloud-init.",
};

/// Checks a file: its folder, its mode and its content.
///
/// # Errors
/// If policies may not have it.
pub fn check(path: &str, content: &str, mode: u32) -> Result<Place, Refusal> {
    let place = place(path)?;
    check_content(place, content, mode).map(|()| place)
}

/// Checks mode and content of a file.
pub(crate) fn check_content(place: Place, content: &str, mode: u32) -> Result<(), Refusal> {
    if !FileMode::ALL.iter().any(|known| known.bits() == mode) {
        return Err(MODE);
    }
    if content.len() > CONTENT_MAX {
        return Err(LENGTH);
    }
    // Programs disagree about a last line without an end, and about carriage returns.
    let is_line = |line: &str| printable(&line.replace('\t', " ")) == line.replace('\t', " ");
    let lines = content.strip_suffix('\n').ok_or(TEXT)?;
    if !lines.split('\n').all(is_line) {
        return Err(TEXT);
    }
    contents::check(place, content)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/etc/modprobe.d/90-web.conf";

    #[test]
    fn content_is_lines_of_text() {
        for content in ["options x y=1\n", "a\n\n\tb\n", "ä\n", "\n"] {
            assert!(check(PATH, content, 0o644).is_ok(), "{content:?}");
        }
        for content in ["", "a", "a\0\n", "a\r\n", "\u{1b}[2J\n", "a\u{202e}b\n", "a\u{7f}\n"] {
            assert_eq!(check(PATH, content, 0o644), Err(TEXT), "{content:?}");
        }
        assert_eq!(check(PATH, &format!("{}\n", "x".repeat(CONTENT_MAX)), 0o644), Err(LENGTH));
    }

    #[test]
    fn mode_excludes_other_users() {
        for mode in FileMode::ALL.iter().map(|known| known.bits()) {
            assert!(check(PATH, "x\n", mode).is_ok());
        }
        for mode in [0, 0o666, 0o755, 0o4644, 0o100_644] {
            assert_eq!(check(PATH, "x\n", mode), Err(MODE), "{mode:o}");
        }
    }

    #[test]
    fn content_is_checked_for_its_program() {
        assert!(check("/etc/sysctl.d/90-x.conf", "vm.max_map_count = 262144\n", 0o644).is_ok());
        assert!(check("/etc/sysctl.d/90-x.conf", "kernel.core_pattern = |/x\n", 0o644).is_err());
    }
}
