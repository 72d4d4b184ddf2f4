//! Foreign text as text: what a file or a user wrote does not command whoever shows it.

use alloc::string::String;
use core::fmt::Write as _;

/// This text in one line, without what a terminal would obey or not show: control, format and separator characters are written as Rust writes
/// them, `\u{1b}` or `\n`.
///
/// Whatever shows text that this program did not make itself passes it through here: of files, arguments, paths, libraries and the system.
pub fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if commands(c) {
            // Writing into a string does not fail.
            let _ = write!(shown, "{}", c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Whether a terminal or a page would do something for it other than showing a character.
fn commands(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_would_command_a_terminal_is_written_out() {
        assert_eq!(plain("a\x1b[31mb\u{202e}c\n\u{9b}1mé"), "a\\u{1b}[31mb\\u{202e}c\\n\\u{9b}1mé");
    }

    proptest! {
        #[test]
        fn nothing_of_any_text_is_obeyed_and_the_rest_stays(text: String) {
            let shown = plain(&text);
            prop_assert!(!shown.chars().any(commands));
            if !text.chars().any(commands) {
                prop_assert_eq!(shown, text);
            }
        }
    }
}
