//! Where the parks of aarch64 stand in the built program: `wfet` in one function, which the capability alone calls, and no `clrex` behind a park.
//!
//! No disassembler for it need be there: an instruction of aarch64 is one word, and this program reads its own.
#![cfg(all(target_arch = "aarch64", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use core::hint::black_box;

use wakeline_core::{HostLine, Instant, Park, Wake};
use wakeline_std::StdClock;
use wakeline_wordwait::WordWait;

/// `wfet` with any register.
const WFET: Word = Word { mask: 0xFFFF_FFE0, bits: 0xD503_1000 };
const WFE: Word = Word { mask: 0xFFFF_FFFF, bits: 0xD503_205F };
const CLREX: Word = Word { mask: 0xFFFF_F0FF, bits: 0xD503_305F };
/// `ldxr` of 64 bits.
const LDXR: Word = Word { mask: 0xFFFF_FC00, bits: 0xC85F_7C00 };
/// `b` and `bl`.
const BRANCH: Word = Word { mask: 0x7C00_0000, bits: 0x1400_0000 };

#[derive(Clone, Copy)]
struct Word {
    mask: u32,
    bits: u32,
}

impl Word {
    fn is(self, word: u32) -> bool {
        word & self.mask == self.bits
    }
}

/// A function: its name, where it is, and its words.
struct Function {
    name: String,
    address: u64,
    words: Vec<u32>,
}

impl Function {
    fn count(&self, what: Word) -> usize {
        self.words.iter().filter(|word| what.is(**word)).count()
    }

    /// Whether it jumps to `address` or calls it.
    fn reaches(&self, address: u64) -> bool {
        let mut at = self.address;
        self.words.iter().any(|word| {
            // 26 bits, in words, from here.
            let distance = i64::from((*word << 6).cast_signed() >> 6) * 4;
            let target = at.wrapping_add_signed(distance);
            at += 4;
            BRANCH.is(*word) && target == address
        })
    }

    fn is_ours(&self) -> bool {
        self.name.contains("wakeline_wordwait")
    }
}

/// A number of an ELF file, which is little-endian here.
fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    bytes[at..at + length].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn at(bytes: &[u8], at: usize) -> usize {
    usize::try_from(number(bytes, at, 8)).unwrap()
}

/// The functions of an ELF file that names them.
fn functions(elf: &[u8]) -> Vec<Function> {
    assert!(elf.starts_with(b"\x7FELF\x02\x01"), "no ELF file of 64 bits");
    let (sections, count) = (at(elf, 0x28), number(elf, 0x3C, 2));
    let header = |index: u64| sections + usize::try_from(index).unwrap() * 0x40;
    let symbols = (0..count).map(header).find(|header| number(elf, header + 4, 4) == 2).unwrap();
    let names = at(elf, header(number(elf, symbols + 0x28, 4)) + 0x18);
    let (table, length) = (at(elf, symbols + 0x18), at(elf, symbols + 0x20));
    let mut found = Vec::new();
    for symbol in (table..table + length).step_by(24) {
        let (section, size) = (number(elf, symbol + 6, 2), at(elf, symbol + 16));
        // Functions that are in this file.
        if elf[symbol + 4] & 0xF != 2 || section == 0 || section >= count || size == 0 {
            continue;
        }
        let name = names + usize::try_from(number(elf, symbol, 4)).unwrap();
        let name = elf[name..].split(|byte| *byte == 0).next().unwrap();
        let address = number(elf, symbol + 8, 8);
        let (start, offset) = (number(elf, header(section) + 0x10, 8), at(elf, header(section) + 0x18));
        let begin = offset + usize::try_from(address - start).unwrap();
        let words =
            elf[begin..begin + size].chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
        found.push(Function {
            name: String::from_utf8_lossy(name).into_owned(),
            address,
            words: words.collect(),
        });
    }
    found
}

/// Keeps the whole way from the probe to the instructions in this program.
fn park_if_there_is_one() -> Option<Wake> {
    let park = WordWait::probe(StdClock::new(), || black_box(None)).ok()?;
    Some(park.park(Some(&HostLine::new()), Instant::ORIGIN, || black_box(false)))
}

#[test]
fn case_44_wfet_is_behind_the_probe_and_no_clrex_is_behind_a_park() {
    assert_ne!(park_if_there_is_one(), Some(Wake::Reached));
    // tidy: allow(env) the path of this very program, which is looked at
    let functions = functions(&std::fs::read(std::env::current_exe().unwrap()).unwrap());
    assert!(functions.len() > 1_000, "only {} functions are named", functions.len());

    let with = |what: Word| functions.iter().filter(move |function| function.count(what) > 0);
    let wfet: Vec<&Function> = with(WFET).collect();
    assert_eq!(wfet.len(), 1, "{:?}", wfet.iter().map(|function| &function.name).collect::<Vec<_>>());
    assert!(wfet[0].name.contains("7aarch644wfet") && wfet[0].count(WFET) == 1, "{}", wfet[0].name);
    // Who calls it is the capability's own file, which nothing but a probe makes one of.
    let callers: Vec<&Function> =
        functions.iter().filter(|function| function.reaches(wfet[0].address)).collect();
    let named: Vec<&String> = callers.iter().map(|caller| &caller.name).collect();
    assert!(!callers.is_empty(), "nobody calls it");
    assert!(callers.iter().all(|caller| caller.is_ours() && caller.name.contains("4arch")), "{named:?}");

    // The parks: armed by an exclusive load, which stays, so that the next store is an event.
    let ours = || functions.iter().filter(|function| function.is_ours());
    assert_eq!(ours().map(|function| function.count(WFE)).sum::<usize>(), 1);
    assert_eq!(ours().map(|function| function.count(LDXR)).sum::<usize>(), 1);
    assert!(with(WFE).all(Function::is_ours), "somebody else waits for events");
    assert_eq!(with(CLREX).map(|function| &function.name).collect::<Vec<_>>(), Vec::<&String>::new());
    println!("{} functions: wfet in {}, called by {named:?}", functions.len(), wfet[0].name);
}
