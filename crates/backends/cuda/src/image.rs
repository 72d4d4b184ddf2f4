//! Images of kernels, looked at before the driver is: how long they say they are, and what they were compiled for.
//!
//! The driver is handed an address and no length, and reads as much as the image's own headers say. So those are followed here first, and an image
//! that says more than there is never gets to it. What CUDA's toolkits 11 to 13 write into the flags by looking
//! at what they wrote.

use wakeline_core::Error;
use wakeline_mapped::image::{ELF_MAGIC, Sort, all_there, cut, elf, invalid, number};

use crate::arch::Arch;
use crate::error::BACKEND;

/// `EM_CUDA`
const CUBIN: Sort = Sort { backend: BACKEND, name: "cubin", machine: 190 };
/// The `EI_ABIVERSION` from which on the flags have the architecture in their second byte, and not in the first.
const ABI_OF_CUDA_13: u8 = 8;

const FAT_MAGIC: &[u8] = &[0x50, 0xed, 0x55, 0xba];

/// What an image is, where all of it is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Machine code for one architecture.
    Cubin(Arch),
    /// Code for several: the driver takes what fits.
    Fat,
}

/// Follows the headers of an image through all that they say is there.
///
/// # Errors
///
/// [`InvalidImage`](wakeline_core::ErrorCode::InvalidImage): it is none, or less than it says.
pub(crate) fn form(image: &[u8]) -> Result<Form, Error> {
    if image.starts_with(ELF_MAGIC) {
        let found = elf(CUBIN, image)?;
        let arch = if found.abi >= ABI_OF_CUDA_13 { found.flags >> 8 } else { found.flags } & 0xff;
        return Ok(Form::Cubin(Arch::of_number(u32::try_from(arch).unwrap_or_default())));
    }
    if image.starts_with(FAT_MAGIC) {
        // Magic, version, bytes of this header; then the bytes behind it.
        let header = number(image, 6, 2).ok_or_else(|| cut(CUBIN, "its header", 16, image.len()))?;
        let bytes = number(image, 8, 8).ok_or_else(|| cut(CUBIN, "its header", 16, image.len()))?;
        all_there(CUBIN, "its code", header, bytes, image.len())?;
        return Ok(Form::Fat);
    }
    let start: Vec<String> = image.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let start = if start.is_empty() { "nothing".to_owned() } else { start.join(" ") };
    Err(invalid(
        CUBIN,
        &format!(
            "it begins with {start}, but a cubin begins with 7f 45 4c 46 and a fat binary with 50 ed 55 ba"
        ),
    ))
}

/// That a device runs machine code of this architecture.
///
/// # Errors
///
/// [`InvalidImage`](wakeline_core::ErrorCode::InvalidImage): it does not.
pub(crate) fn fits(form: Form, device: Arch) -> Result<(), Error> {
    match form {
        Form::Cubin(code) if !device.runs(code) => Err(invalid(
            CUBIN,
            &format!(
                "it was compiled for {code}, and the device is of {device}, which runs code for {}.0 to {device}",
                device.major
            ),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use wakeline_core::ErrorCode;

    use super::*;

    const ELF_HEADER_BYTES: usize = 64;

    /// A cubin of two sections and a segment, with the flags and the ABI of a toolkit.
    fn made(abi: u8, flags: u32) -> Vec<u8> {
        let mut image = vec![0; ELF_HEADER_BYTES];
        image[..9].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0x33, abi]);
        let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
        put(18, &190_u16.to_le_bytes());
        put(32, &64_u64.to_le_bytes());
        put(40, &120_u64.to_le_bytes());
        put(48, &flags.to_le_bytes());
        put(54, &56_u16.to_le_bytes());
        put(56, &1_u16.to_le_bytes());
        put(58, &64_u16.to_le_bytes());
        put(60, &2_u16.to_le_bytes());
        image.resize(64 + 56 + 2 * 64 + 8, 0);
        let mut put = |at: usize, number: u64| image[at..at + 8].copy_from_slice(&number.to_le_bytes());
        // The segment and the second section are the last eight bytes; the first is of no bytes, wherever it says.
        put(64 + 8, 248);
        put(64 + 32, 8);
        put(120 + 24, 1 << 40);
        put(184 + 24, 248);
        put(184 + 32, 8);
        image[120 + 4] = 8;
        image
    }

    fn said(image: &[u8]) -> String {
        let error = form(image).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidImage);
        error.args()[1].clone()
    }

    #[test]
    fn the_architecture_is_read_from_the_flags_of_old_and_new_toolkits() {
        // As NVRTC 11.8 and 12.1 wrote them, and 13.5.
        for (abi, flags, arch) in [
            (7, 0x4b_054b, (7, 5)),
            (7, 0x5a_055a, (9, 0)),
            (8, 0x600_5a04, (9, 0)),
            (8, 0x600_7802, (12, 0)),
        ] {
            assert_eq!(form(&made(abi, flags)).unwrap(), Form::Cubin(Arch::new(arch.0, arch.1)));
        }
    }

    #[test]
    fn every_cut_is_found() {
        let whole = made(8, 0x600_5a04);
        for len in 0..whole.len() {
            let error = said(&whole[..len]);
            assert!(
                len < 4 && error.starts_with("it begins with")
                    || error.starts_with("it is cut: its ")
                    || error.starts_with("it is cut: the list"),
                "{len}: {error}"
            );
        }
        assert!(form(&whole).is_ok());
    }

    #[test]
    fn lengths_beyond_all_memory_are_cuts() {
        for at in [32, 40, 64 + 8, 64 + 32, 184 + 24, 184 + 32] {
            let mut image = made(8, 0x600_5a04);
            image[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
            assert!(said(&image).starts_with("it is cut"), "{at}");
        }
    }

    #[test]
    fn what_is_no_cubin_is_told() {
        let mut other = made(8, 0);
        other[18] = 62;
        assert!(said(&other).contains("for machine 62"));
        let mut small = made(8, 0);
        small[4] = 1;
        assert!(said(&small).contains("64 bits"));
        let mut odd = made(8, 0);
        odd[58] = 40;
        assert!(said(&odd).contains("headers of 40 bytes, but 64"));
        assert!(said(b"").contains("begins with nothing"));
        assert!(said(b"//").contains("begins with 2f 2f,"));
    }

    #[test]
    fn a_fat_binary_is_as_long_as_it_says() {
        let mut image = vec![0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0];
        image.extend(8_u64.to_le_bytes());
        image.extend([0; 8]);
        assert_eq!(form(&image).unwrap(), Form::Fat);
        assert!(said(&image[..23]).contains("ends at byte 24, and there are 23"));
        assert!(said(&image[..7]).contains("its header"));
    }

    #[test]
    fn code_of_another_generation_does_not_fit() {
        let cubin = Form::Cubin(Arch::new(8, 0));
        assert!(fits(cubin, Arch::new(8, 9)).is_ok() && fits(Form::Fat, Arch::new(9, 0)).is_ok());
        let error = fits(cubin, Arch::new(9, 0)).unwrap_err();
        assert!(error.args()[1].contains("compiled for 8.0, and the device is of 9.0"), "{error}");
    }
}
