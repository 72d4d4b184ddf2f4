//! What entries are as bytes: numbers with their low byte first, texts and lists with their lengths before them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::compile::key::Key;
use crate::compile::library::{CompilerVersion, Facts};
use crate::compile::made::{Code, Made};

const MACHINE_CODE: u64 = 1;
const TEXT: u64 = 2;

/// The key is part of it, should a file be given another's name.
pub(super) fn of_compiled(compiled: &Made, key: &Key) -> Vec<u8> {
    let mut out = Writer(Vec::new());
    out.bytes(&key.0);
    match &compiled.code {
        Code::Machine(image) => {
            out.number(MACHINE_CODE);
            out.bytes(image);
        }
        Code::Text(text) => {
            out.number(TEXT);
            out.bytes(text.as_bytes_with_nul());
        }
    }
    out.number(compiled.names.len() as u64);
    for (name, lowered) in &compiled.names {
        out.bytes(name.as_bytes());
        out.bytes(lowered.as_bytes());
    }
    out.bytes(compiled.log.as_bytes());
    out.0
}

pub(super) fn compiled(payload: &[u8], key: &Key) -> Option<Made> {
    let mut input = Reader(payload);
    if input.bytes()? != key.0 {
        return None;
    }
    let (kind, code) = (input.number()?, input.bytes()?.to_vec());
    let code = match kind {
        MACHINE_CODE => Code::Machine(code),
        TEXT => Code::text(code)?,
        _ => return None,
    };
    let mut names = Vec::new();
    for _ in 0..input.number()? {
        names.push((input.text()?, input.text()?));
    }
    let log = input.text()?;
    input.0.is_empty().then_some(Made { code, names, log })
}

/// Which file it is: another of the same name differs in its length or in the time at which it was written.
fn mark(path: &Path) -> Option<[u64; 2]> {
    let metadata = fs::metadata(path).ok()?;
    let written = metadata.modified().ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some([metadata.len(), u64::try_from(written.as_nanos()).ok()?])
}

/// `None` where its file cannot be told from another.
pub(super) fn of_facts(facts: &Facts) -> Option<Vec<u8>> {
    let mut out = Writer(Vec::new());
    out.bytes(facts.path.to_str()?.as_bytes());
    mark(&facts.path)?.into_iter().for_each(|number| out.number(number));
    out.number(facts.version.major.into());
    out.number(facts.version.minor.into());
    out.number(facts.archs.len() as u64);
    facts.archs.iter().for_each(|arch| out.number((*arch).into()));
    Some(out.0)
}

/// `None` where the file is another by now.
pub(super) fn facts(payload: &[u8]) -> Option<Facts> {
    let mut input = Reader(payload);
    let path = PathBuf::from(input.text()?);
    if mark(&path)? != [input.number()?, input.number()?] {
        return None;
    }
    let mut small = || u32::try_from(input.number()?).ok();
    let version = CompilerVersion { major: small()?, minor: small()? };
    let count = small()?;
    let archs = (0..count).map(|_| small()).collect::<Option<Vec<_>>>()?;
    Some(Facts { version, archs, path })
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }
}
