//! Code objects, looked at before the library is: how long they say they are.
//!
//! The library is handed an address and no length. Layouts: ELF by its specification, and LLVM's bundles of several (`clang-offload-bundler`): a magic, how many there are,
//! and of each where it begins, how long it is, how long its name is, and that.

use wakeline_core::Error;
use wakeline_mapped::image::{ELF_MAGIC, Sort, all_there, elf, invalid, number};

use crate::error::BACKEND;

/// `EM_AMDGPU`
const CODE_OBJECT: Sort = Sort { backend: BACKEND, name: "code object", machine: 224 };

const BUNDLE_MAGIC: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
/// How many entries a bundle may have.
const ENTRIES_MAX: u64 = 4_096;
/// The length of a name is not known before it is read; this is behind all names of sense.
const NAME_BYTES_MAX: u64 = 4_096;

/// Follows the headers of an image through all that they say is there.
///
/// # Errors
///
/// [`InvalidImage`](wakeline_core::ErrorCode::InvalidImage): it is none, or less than it says.
pub(crate) fn check(image: &[u8]) -> Result<(), Error> {
    if image.starts_with(ELF_MAGIC) {
        return elf(CODE_OBJECT, image).map(drop);
    }
    if image.starts_with(BUNDLE_MAGIC) {
        return bundle(image);
    }
    let start: Vec<String> = image.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let start = if start.is_empty() { "nothing".to_owned() } else { start.join(" ") };
    let right = "a code object begins with 7f 45 4c 46, and a bundle of them with 5f 5f 43 4c";
    Err(invalid(CODE_OBJECT, &format!("it begins with {start}, but {right}")))
}

fn bundle(image: &[u8]) -> Result<(), Error> {
    let field = |at: u64| {
        all_there(CODE_OBJECT, "its list of entries", at, 8, image.len())?;
        Ok::<_, Error>(number(image, usize::try_from(at).unwrap_or(usize::MAX), 8).unwrap_or_default())
    };
    let mut at = BUNDLE_MAGIC.len() as u64;
    let count = field(at)?;
    if count > ENTRIES_MAX {
        return Err(invalid(
            CODE_OBJECT,
            &format!("it says it has {count} entries, of {ENTRIES_MAX} at most"),
        ));
    }
    at += 8;
    for index in 0..count {
        let (start, bytes, name) = (field(at)?, field(at + 8)?, field(at + 16)?);
        if name > NAME_BYTES_MAX {
            return Err(invalid(CODE_OBJECT, &format!("the name of its entry {index} has {name} bytes")));
        }
        all_there(CODE_OBJECT, "its list of entries", at + 24, name, image.len())?;
        all_there(CODE_OBJECT, &format!("its entry {index}"), start, bytes, image.len())?;
        at += 24 + name;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use wakeline_core::ErrorCode;

    use super::*;

    fn made() -> Vec<u8> {
        let name = b"hip-amdgcn-amd-amdhsa--gfx90a";
        let mut image = BUNDLE_MAGIC.to_vec();
        let start = image.len() as u64 + 8 + 24 + name.len() as u64;
        for number in [1, start, 16, name.len() as u64] {
            image.extend(number.to_le_bytes());
        }
        image.extend(name);
        image.extend([7; 16]);
        image
    }

    #[test]
    fn every_cut_of_a_bundle_is_found_and_so_are_lengths_beyond_all_memory() {
        let whole = made();
        assert!(check(&whole).is_ok());
        for len in 0..whole.len() {
            assert_eq!(check(&whole[..len]).unwrap_err().code(), ErrorCode::InvalidImage, "{len}");
        }
        for at in [24, 32, 40, 48] {
            let mut image = made();
            image[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
            assert_eq!(check(&image).unwrap_err().code(), ErrorCode::InvalidImage, "{at}");
        }
    }

    #[test]
    fn what_is_no_code_object_is_told() {
        let said = |image: &[u8]| check(image).unwrap_err().args()[1].clone();
        assert!(said(b"").contains("begins with nothing"));
        assert!(said(b".version 8.0").contains("begins with 2e 76 65 72,"));
        let mut cubin = vec![0; 64];
        cubin[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        cubin[18] = 190;
        assert!(said(&cubin).contains("for machine 190, but a code object is for 224"));
    }
}
