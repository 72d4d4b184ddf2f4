//! A tokeniser: real work for a host to do while it waits.
//!
//! Greedy and longest-first over a fixed vocabulary, as word-piece tokenisers are: a word is cut into the longest pieces that
//! the vocabulary has, and what it has not goes by letters.

use std::collections::BTreeSet;

/// The text that the examples tokenise: real prose, in the public domain.
pub const TEXT: &str = include_str!("../data/alice.txt");

/// The longest piece of a vocabulary, in bytes.
const PIECE_BYTES_MAX: usize = 12;

/// The pieces that words are cut into, besides single letters.
#[derive(Clone, Debug)]
pub struct Tokenizer<'t> {
    pieces: BTreeSet<&'t str>,
}

impl<'t> Tokenizer<'t> {
    /// A tokeniser whose vocabulary is the beginnings of the words of `text`, up to 12 bytes long.
    pub fn of(text: &'t str) -> Self {
        let beginnings = |word: &'t str| {
            let cuts = word.char_indices().map(|(at, c)| at + c.len_utf8());
            cuts.filter(|cut| *cut <= PIECE_BYTES_MAX).map(move |cut| &word[..cut])
        };
        Self { pieces: words(text).filter(|word| word.len() > 3).flat_map(beginnings).collect() }
    }

    /// How many tokens `text` has.
    ///
    /// ```
    /// use wakeline_examples::tokens::Tokenizer;
    /// let tokenizer = Tokenizer::of("rabbit hole");
    /// assert_eq!(tokenizer.count("rabbit-holes!"), 5); // rabbit - hole s !
    /// ```
    pub fn count(&self, text: &str) -> u64 {
        words(text).map(|word| self.pieces_of(word)).sum()
    }

    fn pieces_of(&self, mut word: &str) -> u64 {
        let mut count = 0;
        while let Some(letter) = word.chars().next() {
            let longest = (letter.len_utf8()..=word.len().min(PIECE_BYTES_MAX))
                .rev()
                .find(|&end| word.is_char_boundary(end) && self.pieces.contains(&word[..end]))
                .unwrap_or(letter.len_utf8());
            word = &word[longest..];
            count += 1;
        }
        count
    }
}

/// Words and marks: runs of letters and digits, and every other character but white space by itself.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let first = rest.chars().next()?;
        let end = if first.is_alphanumeric() {
            rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (word, behind) = rest.split_at(end);
        rest = behind;
        Some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_cut_into_the_longest_pieces_known() {
        let tokenizer = Tokenizer::of("rabbit sister");
        // A vocabulary has the beginnings of its words; a word without any goes by letters.
        for (text, tokens) in
            [("", 0), (" \n", 0), ("rabbit", 1), ("rabbis", 2), ("rabbitsister", 2), ("xyz", 3), ("r s!", 3)]
        {
            assert_eq!(tokenizer.count(text), tokens, "{text:?}");
        }
    }

    #[test]
    fn no_text_is_cut_within_a_character() {
        let tokenizer = Tokenizer::of("größenwahnsinnig äöüäöüäöüäöü");
        assert_eq!(tokenizer.count("größe ßß 日本語"), 1 + 2 + 3);
        assert_eq!(tokenizer.count("äöüäöü"), 1);
    }

    #[test]
    fn the_text_has_something_to_do() {
        assert!(Tokenizer::of(TEXT).count(TEXT) > 300);
    }
}
