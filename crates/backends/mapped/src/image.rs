//! Images of kernels, looked at before a driver is: how long they say they are.
//!
//! A driver is handed an address and no length, and reads as much as the image's own headers say. So those are followed first, and an image
//! that says more than there is never gets to it. Layouts: ELF by its specification.

use wakeline_core::{Error, ErrorCode};

/// How an ELF file begins.
pub const ELF_MAGIC: &[u8] = b"\x7fELF";
/// 64 bits, the low byte first, version 1 of the format.
const ELF_CLASS: &[u8] = &[2, 1, 1];
const ELF_HEADER_BYTES: usize = 64;
const SECTION_BYTES: u64 = 64;
const SEGMENT_BYTES: u64 = 56;
/// A section that takes no room in the file.
const SECTION_WITHOUT_BYTES: u64 = 8;

/// What an image is to be.
#[derive(Clone, Copy, Debug)]
pub struct Sort {
    /// Whose driver it is for: "cuda".
    pub backend: &'static str,
    /// What it is called: "cubin".
    pub name: &'static str,
    /// The machine that such a file is for, as ELF counts them.
    pub machine: u64,
}

/// What the header of an ELF file says of its code, where all that it says is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elf {
    /// `e_flags`
    pub flags: u64,
    /// `EI_ABIVERSION`
    pub abi: u8,
}

/// Follows the headers of an ELF file through all that they say is there.
///
/// # Errors
///
/// [`InvalidImage`](ErrorCode::InvalidImage): it is of another sort, or less than it says.
pub fn elf(sort: Sort, image: &[u8]) -> Result<Elf, Error> {
    if image.len() < ELF_HEADER_BYTES {
        return Err(cut(sort, "its header", ELF_HEADER_BYTES as u64, image.len()));
    }
    if image.get(4..7) != Some(ELF_CLASS) {
        return Err(invalid(
            sort,
            &format!("it is an ELF file, but not of 64 bits with the low byte first, as a {} is", sort.name),
        ));
    }
    let field = |at: usize, bytes: usize| number(image, at, bytes).unwrap_or_default();
    let machine = field(18, 2);
    if machine != sort.machine {
        return Err(invalid(
            sort,
            &format!("it is an ELF file for machine {machine}, but a {} is for {}", sort.name, sort.machine),
        ));
    }
    let (segments, sections) = (field(32, 8), field(40, 8));
    let (flags, abi) = (field(48, 4), image.get(8).copied().unwrap_or_default());
    let (segment_bytes, segment_count) = (field(54, 2), field(56, 2));
    let (section_bytes, section_count) = (field(58, 2), field(60, 2));
    for (what, count, bytes, wanted) in [
        ("segment", segment_count, segment_bytes, SEGMENT_BYTES),
        ("section", section_count, section_bytes, SECTION_BYTES),
    ] {
        if count > 0 && bytes != wanted {
            return Err(invalid(
                sort,
                &format!("its {what}s have headers of {bytes} bytes, but {wanted} are right"),
            ));
        }
    }
    // Counts that do not fit are kept elsewhere, which no cubin needs.
    if section_count == 0 || sections == 0 {
        return Err(invalid(sort, &format!("it has no sections, and a {} has its code in some", sort.name)));
    }
    all_there(sort, "the list of its sections", sections, section_count * SECTION_BYTES, image.len())?;
    all_there(sort, "the list of its segments", segments, segment_count * SEGMENT_BYTES, image.len())?;
    let at = |start: u64, index: u64, each: u64, field: u64, bytes: usize| {
        let at = usize::try_from(start + index * each + field).unwrap_or(usize::MAX);
        number(image, at, bytes).unwrap_or_default()
    };
    for index in 0..section_count {
        if at(sections, index, SECTION_BYTES, 4, 4) != SECTION_WITHOUT_BYTES {
            let (start, bytes) =
                (at(sections, index, SECTION_BYTES, 24, 8), at(sections, index, SECTION_BYTES, 32, 8));
            all_there(sort, &format!("its section {index}"), start, bytes, image.len())?;
        }
    }
    for index in 0..segment_count {
        let (start, bytes) =
            (at(segments, index, SEGMENT_BYTES, 8, 8), at(segments, index, SEGMENT_BYTES, 32, 8));
        all_there(sort, &format!("its segment {index}"), start, bytes, image.len())?;
    }
    Ok(Elf { flags, abi })
}

/// A number of so many bytes, the low one first.
pub fn number(image: &[u8], at: usize, bytes: usize) -> Option<u64> {
    let bytes = image.get(at..at.checked_add(bytes)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// That the bytes from `start` on are there.
///
/// # Errors
///
/// [`InvalidImage`](ErrorCode::InvalidImage): they are not.
pub fn all_there(sort: Sort, what: &str, start: u64, bytes: u64, len: usize) -> Result<(), Error> {
    let end = start.saturating_add(bytes);
    if end > len as u64 { Err(cut(sort, what, end, len)) } else { Ok(()) }
}

/// The error of an image that ends too early.
#[cold]
pub fn cut(sort: Sort, what: &str, end: u64, len: usize) -> Error {
    invalid(sort, &format!("it is cut: {what} ends at byte {end}, and there are {len} bytes"))
}

/// The error of an image that is none.
#[cold]
pub fn invalid(sort: Sort, what: &str) -> Error {
    Error::new(ErrorCode::InvalidImage, [&sort.backend, &what])
}
