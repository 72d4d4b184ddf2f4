//! Rust source, line by line, taken apart into code, comments and string literals.
//!
//! No parser: the rules look for few words, and need to know only whether a word is code, comment or text.

/// One line of a Rust file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// The code, without comments and without what is inside literals.
    pub(crate) code: String,
    /// The comments, with their slashes.
    pub(crate) comment: String,
    /// The string literals, or the parts of them that lie in this line.
    pub(crate) strings: Vec<String>,
}

impl Line {
    pub(crate) fn is_comment_only(&self) -> bool {
        self.code.trim().is_empty() && !self.comment.is_empty()
    }

    pub(crate) fn is_attribute(&self) -> bool {
        self.code.trim_start().starts_with("#[")
    }
}

#[derive(Clone, Copy)]
enum State {
    Code,
    LineComment,
    /// How deep it is nested.
    BlockComment(usize),
    Str,
    /// How many `#` end it.
    RawStr(usize),
}

struct Lexer<'c> {
    chars: &'c [char],
    at: usize,
    state: State,
    line: Line,
    text: String,
    lines: Vec<Line>,
}

/// The lines of `text`.
pub(crate) fn lex(text: &str) -> Vec<Line> {
    let chars: Vec<char> = text.chars().collect();
    let line = Line::default();
    let mut lexer =
        Lexer { chars: &chars, at: 0, state: State::Code, line, text: String::new(), lines: Vec::new() };
    while lexer.at < chars.len() {
        lexer.step();
    }
    if lexer.line != Line::default() {
        lexer.end_line();
    }
    lexer.lines
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn follows(&self, what: &str) -> bool {
        what.chars().enumerate().all(|(ahead, c)| self.peek(ahead) == Some(c))
    }

    fn end_line(&mut self) {
        self.end_text();
        self.lines.push(std::mem::take(&mut self.line));
    }

    fn end_text(&mut self) {
        if !self.text.is_empty() {
            self.line.strings.push(std::mem::take(&mut self.text));
        }
    }

    fn step(&mut self) {
        let Some(c) = self.peek(0) else { return };
        if c == '\n' {
            if matches!(self.state, State::LineComment) {
                self.state = State::Code;
            }
            self.end_line();
            self.at += 1;
            return;
        }
        match self.state {
            State::Code => self.code(c),
            State::BlockComment(depth) if self.follows("/*") => {
                self.state = State::BlockComment(depth + 1);
                self.comment(2);
            }
            State::BlockComment(depth) if self.follows("*/") => {
                self.state = if depth == 1 { State::Code } else { State::BlockComment(depth - 1) };
                self.comment(2);
            }
            State::LineComment | State::BlockComment(_) => self.comment(1),
            State::Str if c == '\\' => {
                self.text.push(c);
                self.at += 1;
                if let Some(escaped) = self.peek(0).filter(|escaped| *escaped != '\n') {
                    self.text.push(escaped);
                    self.at += 1;
                }
            }
            State::Str if c == '"' => self.end_str(0),
            State::RawStr(hashes) if c == '"' && self.follows(&format!("\"{}", "#".repeat(hashes))) => {
                self.end_str(hashes);
            }
            State::Str | State::RawStr(_) => {
                self.text.push(c);
                self.at += 1;
            }
        }
    }

    fn comment(&mut self, length: usize) {
        self.line.comment.extend(&self.chars[self.at..self.at + length]);
        self.at += length;
    }

    fn end_str(&mut self, hashes: usize) {
        self.end_text();
        self.line.code.push('"');
        self.at += 1 + hashes;
        self.state = State::Code;
    }

    fn code(&mut self, c: char) {
        if self.follows("//") {
            self.state = State::LineComment;
            self.comment(2);
        } else if self.follows("/*") {
            self.state = State::BlockComment(1);
            self.comment(2);
        } else if let Some(hashes) = self.raw_str() {
            self.line.code.push('"');
            self.at += 2 + hashes;
            self.state = State::RawStr(hashes);
        } else if c == '"' {
            self.line.code.push('"');
            self.at += 1;
            self.state = State::Str;
        } else if let Some(length) = self.char_literal() {
            self.line.code.push_str("' '");
            self.at += length;
        } else {
            self.line.code.push(c);
            self.at += 1;
        }
    }

    /// The number of `#` where a raw string literal begins here.
    fn raw_str(&self) -> Option<usize> {
        let before = |back: usize| self.at.checked_sub(back).map(|at| self.chars[at]);
        let starts = match before(1) {
            Some('b' | 'c') => !before(2).is_some_and(is_word),
            other => !other.is_some_and(is_word),
        };
        if !starts || self.peek(0) != Some('r') {
            return None;
        }
        let hashes = self.chars[self.at + 1..].iter().take_while(|c| **c == '#').count();
        (self.peek(1 + hashes) == Some('"')).then_some(hashes)
    }

    /// The length of a character literal that begins here; a lifetime is none.
    fn char_literal(&self) -> Option<usize> {
        if self.peek(0) != Some('\'') {
            return None;
        }
        if self.peek(1) == Some('\\') {
            let end = self.chars.iter().skip(self.at + 3).position(|c| *c == '\'');
            return end.map(|after| after + 4);
        }
        (self.peek(2) == Some('\'')).then_some(3)
    }
}

/// Whether `c` can be part of an identifier.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The byte offsets at which `what` stands in `text`, not as a part of a longer word.
pub(crate) fn find_words<'t>(text: &'t str, what: &'t str) -> impl Iterator<Item = usize> + 't {
    text.match_indices(what).map(|(at, _)| at).filter(move |at| {
        let before = text[..*at].chars().next_back();
        let after = text[at + what.len()..].chars().next();
        let open_start = !what.starts_with(is_word) || !before.is_some_and(is_word);
        let open_end = !what.ends_with(is_word) || !after.is_some_and(is_word);
        open_start && open_end
    })
}

/// Whether `what` stands in `text`, not as a part of a longer word.
pub(crate) fn has_word(text: &str, what: &str) -> bool {
    find_words(text, what).next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(text: &str) -> Line {
        let lines = lex(text);
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines.into_iter().next().unwrap()
    }

    #[test]
    fn code_comments_and_strings_are_told_apart() {
        let line = only(r#"let a = "unsafe // \" {"; // SAFETY: "x""#);
        assert_eq!(line.code, r#"let a = ""; "#);
        assert_eq!(line.strings, [r#"unsafe // \" {"#]);
        assert_eq!(line.comment, r#"// SAFETY: "x""#);
    }

    #[test]
    fn raw_strings_and_raw_identifiers() {
        assert_eq!(only(r##"f(r#"a "quoted" b"#, br"c")"##).strings, [r#"a "quoted" b"#, "c"]);
        assert_eq!(only("r#fn(for_r)").code, "r#fn(for_r)");
        assert_eq!(only(r#"bar"x""#).strings, ["x"]);
    }

    #[test]
    fn characters_and_lifetimes() {
        let line = only(r#"m('"', '\'', '\u{1F600}', "s"); fn f<'a>(x: &'a str) {}"#);
        assert_eq!(line.strings, ["s"]);
        assert_eq!(line.code, "m(' ', ' ', ' ', \"\"); fn f<'a>(x: &'a str) {}");
    }

    #[test]
    fn comments_nest_and_span_lines() {
        let lines = lex("a /* b /* c */\nd */ e\n\"x\ny\" f\n");
        let code: Vec<&str> = lines.iter().map(|line| line.code.as_str()).collect();
        assert_eq!(code, ["a ", " e", "\"", "\" f"]);
        assert_eq!((&lines[2].strings, &lines[3].strings), (&vec!["x".to_owned()], &vec!["y".to_owned()]));
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("a static b", "static") && !has_word("statically", "static"));
        assert!(has_word("use std::env;", "std::") && !has_word("my_std::x", "std::"));
        assert!(!has_word("unsafe_code", "unsafe"));
    }
}
