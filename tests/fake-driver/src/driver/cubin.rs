//! Images of machine code, as far as a loader looks at them: an ELF file with a text in PTX where the code would be.

use super::Answer;
use super::arg::Image;
use crate::Status;

const HEADER_BYTES: usize = 64;
const SECTION_BYTES: usize = 64;
const MACHINE_CUDA: u16 = 190;
const MACHINE_AMDGPU: u16 = 224;
/// The section of the text; the first one is of nothing.
const TEXT_SECTION: usize = 1;

/// An image for an architecture (90), as toolkits of CUDA 13 write them.
pub(super) fn made(arch: u32, text: &str) -> Vec<u8> {
    image(MACHINE_CUDA, arch << 8 | 4, text)
}

/// A code object of HIP's, for whatever device.
pub(super) fn code_object(text: &str) -> Vec<u8> {
    image(MACHINE_AMDGPU, 0, text)
}

fn image(machine: u16, flags: u32, text: &str) -> Vec<u8> {
    let mut image = vec![0; HEADER_BYTES];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x7fELF\x02\x01\x01\x41\x08");
    put(16, &2_u16.to_le_bytes());
    put(18, &machine.to_le_bytes());
    put(20, &1_u32.to_le_bytes());
    let sections = HEADER_BYTES + text.len();
    put(40, &(sections as u64).to_le_bytes());
    put(48, &flags.to_le_bytes());
    put(58, &64_u16.to_le_bytes());
    put(60, &2_u16.to_le_bytes());
    image.extend(text.as_bytes());
    image.resize(sections + 2 * SECTION_BYTES, 0);
    let at = sections + TEXT_SECTION * SECTION_BYTES;
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(at + 4, &1_u32.to_le_bytes());
    put(at + 24, &(HEADER_BYTES as u64).to_le_bytes());
    put(at + 32, &(text.len() as u64).to_le_bytes());
    image
}

/// The text in an image for a device of this architecture, read as far as the image itself says.
pub(super) fn text(image: Image, device: u32) -> Answer<String> {
    let header = image.bytes(0, HEADER_BYTES)?;
    let arch = number(&header, 49, 1);
    let device = usize::try_from(device).unwrap_or_default();
    if arch / 10 != device / 10 || arch > device {
        return Err(Status::NO_BINARY_FOR_GPU.into());
    }
    text_of(image, &header, MACHINE_CUDA)
}

/// The text in a code object.
pub(super) fn text_of_code_object(image: Image) -> Answer<String> {
    let header = image.bytes(0, HEADER_BYTES)?;
    text_of(image, &header, MACHINE_AMDGPU)
}

fn number(bytes: &[u8], at: usize, len: usize) -> usize {
    bytes[at..at + len].iter().rev().fold(0_usize, |number, byte| number << 8 | usize::from(*byte))
}

fn text_of(image: Image, header: &[u8], machine: u16) -> Answer<String> {
    if number(header, 18, 2) != usize::from(machine) || number(header, 60, 2) <= TEXT_SECTION {
        return Err(Status::INVALID_IMAGE.into());
    }
    let section = image.bytes(number(header, 40, 8) + TEXT_SECTION * SECTION_BYTES, SECTION_BYTES)?;
    let text = image.bytes(number(&section, 24, 8), number(&section, 32, 8))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
