//! Inputs from other inputs.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use crate::targets::Target;

/// The longest input that is made, in bytes: longer than a line of a trace may be.
pub const INPUT_BYTES_MAX: usize = 6_000;

/// Numbers at the ends of ranges.
const NUMBERS: [&str; 16] = [
    "0",
    "1",
    "2",
    "-1",
    "+1",
    "00",
    "007",
    "10",
    "100",
    "1000000",
    "4294967295",
    "4294967296",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999",
];

/// What parts texts.
const SEPARATORS: &[u8] = b":,+=;\n ";

/// Draws, from a seed.
#[derive(Debug)]
pub struct Mutator(Pcg64Mcg);

impl Mutator {
    /// That of a seed.
    pub fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// A number below `bound`, 0 where that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        // The bias of a remainder does not matter here.
        usize::try_from(self.0.next_u64() >> 11).unwrap_or(0).checked_rem(bound).unwrap_or(0)
    }

    /// Changes `input` in one to six ways; `other` is another input.
    pub fn change(&mut self, target: Target, input: &mut Vec<u8>, other: &[u8]) {
        for _ in 0..=self.below(6) {
            self.change_once(target, input, other);
        }
        input.truncate(INPUT_BYTES_MAX);
    }

    fn change_once(&mut self, target: Target, input: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(input.len() + 1);
        match self.below(12) {
            0 if !input.is_empty() => {
                let at = at.min(input.len() - 1);
                input[at] = self.0.next_u64().to_le_bytes()[0];
            }
            1 if !input.is_empty() => {
                let at = at.min(input.len() - 1);
                input[at] ^= 1 << self.below(8);
            }
            2 | 3 => {
                let words = target.words();
                let word = words[self.below(words.len())];
                insert(input, at, word.as_bytes());
            }
            4 => insert(input, at, NUMBERS[self.below(NUMBERS.len())].as_bytes()),
            5 => {
                let end = (at + 1 + self.below(12)).min(input.len());
                input.drain(at.min(end)..end);
            }
            6 => {
                let (from, to) = self.field(input);
                input.drain(from..to);
            }
            7 => {
                // A field once more, perhaps often.
                let (from, to) = self.field(input);
                let field = input[from..to].to_vec();
                let times = if self.below(50) == 0 { 1 + self.below(400) } else { 1 };
                insert(input, at, &field.repeat(times));
            }
            8 => {
                // One of another input in place of one's own.
                let ((from, to), (first, last)) = (self.field(input), self.field(other));
                input.splice(from..to, other[first..last].iter().copied());
            }
            9 => {
                // The head of one and the tail of another.
                input.truncate(at);
                input.extend_from_slice(&other[self.below(other.len() + 1)..]);
            }
            10 => {
                // A run of digits becomes another number.
                if let Some(from) = input.iter().skip(at).position(u8::is_ascii_digit).map(|from| at + from) {
                    let len = input[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                    let number = NUMBERS[self.below(NUMBERS.len())];
                    input.splice(from..from + len, number.bytes());
                }
            }
            _ => {
                let strange = ["é", "\u{202e}", "\u{0}", "\u{feff}", "😀", "ſ", "İ", "\r"];
                insert(input, at, strange[self.below(strange.len())].as_bytes());
            }
        }
    }

    /// From one separator to the next.
    fn field(&mut self, input: &[u8]) -> (usize, usize) {
        let at = self.below(input.len() + 1);
        let parts = |byte: &u8| SEPARATORS.contains(byte);
        let from = input[..at].iter().rposition(parts).unwrap_or(0);
        let to = input[at..].iter().position(parts).map_or(input.len(), |to| at + to);
        (from, to)
    }
}

fn insert(input: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    input.splice(at..at, bytes.iter().copied());
}
