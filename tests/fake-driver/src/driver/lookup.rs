//! `cuGetProcAddress`: a name and a version give the newest variant that is not newer than the version.

use core::ffi::c_int;

use super::Answer;
use super::arg::{Out, Text};
use super::exports::{EXPORTS, Export};
use super::state::State;
use crate::Status;

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`
const PER_THREAD: u64 = 2;

/// What the second variant says of its search: a `CUdriverProcAddressQueryResult`.
#[derive(Clone, Copy, Debug)]
enum Search {
    Found = 0,
    Unknown = 1,
    TooOld = 2,
}

/// The first variant has a status alone for what it does not find.
pub(super) fn get(state: &mut State, name: Text, out: Out<usize>, version: c_int, flags: u64) -> Answer {
    match search(state, name, out, version, flags)? {
        Search::Found => Ok(()),
        Search::Unknown | Search::TooOld => Err(Status::NOT_FOUND.into()),
    }
}

pub(super) fn get_v2(
    state: &mut State,
    name: Text,
    out: Out<usize>,
    version: c_int,
    flags: u64,
    found: Out<c_int>,
) -> Answer {
    let search = search(state, name, out, version, flags)?;
    found.set_if_wanted(search as c_int);
    Ok(())
}

fn search(state: &State, name: Text, out: Out<usize>, version: c_int, flags: u64) -> Answer<Search> {
    let name = name.read()?;
    out.needed()?;
    if version > state.options.driver_version || flags > PER_THREAD {
        return Err(Status::INVALID_VALUE.into());
    }
    let options = &state.options;
    let has = |export: &&Export| {
        export.base == name && export.since <= options.driver_version && !options.hidden.contains(export.name)
    };
    let variants = || EXPORTS.iter().filter(has);
    let best = variants().filter(|export| export.since <= version).max_by_key(|export| export.since);
    let address = best.map(|export| {
        let address = if flags == PER_THREAD { export.per_thread } else { export.plain };
        address()
    });
    out.set(address.unwrap_or(0))?;
    Ok(match address {
        Some(_) => Search::Found,
        None if variants().next().is_some() => Search::TooOld,
        None => Search::Unknown,
    })
}
