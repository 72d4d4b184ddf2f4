//! Matrix products by cuBLAS, as an operation of one's own: the library is loaded by its name, and nothing is linked.

#![allow(clippy::many_single_char_names, reason = "as in c = a * b, of m by k and k by n numbers")]

use core::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use libloading::Library;
use wakeline::ops::{DeviceOp, Submission, value, with_context};
use wakeline::tensor::Tensor;
use wakeline::{Error, ErrorCode};

use crate::Gpu;
use crate::mlp::{Product, Products};

/// The names that the library has on Linux, the newest first.
const NAMES: [&str; 2] = ["libcublas.so.13", "libcublas.so.12"];

/// What the library may use meanwhile, in bytes: it would allocate by itself, which no capture can have.
const WORKSPACE_BYTES: usize = 32 << 20;

/// `CUBLAS_OP_N`
const AS_IT_IS: c_int = 0;

type Status = c_int;
type Create = unsafe extern "C" fn(*mut *mut c_void) -> Status;
type SetStream = unsafe extern "C" fn(*mut c_void, *mut c_void) -> Status;
type SetWorkspace = unsafe extern "C" fn(*mut c_void, u64, usize) -> Status;
type Sgemm = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const f32,
    u64,
    c_int,
    u64,
    c_int,
    *const f32,
    u64,
    c_int,
) -> Status;

/// The library, and a handle of it.
struct Loaded {
    name: &'static str,
    set_stream: SetStream,
    set_workspace: SetWorkspace,
    sgemm: Sgemm,
    /// One thread at a time.
    handle: Mutex<Handle>,
    workspace: Tensor<u8, Gpu>,
}

/// Never destroyed: that waits for the device, and whoever drops the last of these may be the one that sees a flight end.
struct Handle(*mut c_void);

// SAFETY: the library takes its handles from any thread, one at a time.
unsafe impl Send for Handle {}

/// cuBLAS, for one device. Clones share it.
#[derive(Clone)]
pub(crate) struct Cublas(Arc<Loaded>);

fn check(call: &'static str, status: Status) -> Result<(), Error> {
    if status == 0 {
        return Ok(());
    }
    Err(Error::new(ErrorCode::Backend, [&"cublas", &call, &format!("status {status}")]))
}

impl Cublas {
    /// Loads it for this device, in its context. The device's default runtime makes what it needs.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub(crate) fn load(device: &Gpu) -> Result<Self, String> {
        let mut said = Vec::new();
        for name in NAMES {
            // SAFETY: opening runs the initializers of a library of NVIDIA's, which the user has installed.
            match unsafe { Library::new(name) } {
                Ok(library) => return Self::with(device, name, library).map_err(|error| error.to_string()),
                // The system's own words are the error's source.
                Err(error) => said.push(match core::error::Error::source(&error) {
                    Some(source) => format!("{name}: {source}"),
                    None => format!("{name}: {error}"),
                }),
            }
        }
        Err(said.join("; "))
    }

    fn with(device: &Gpu, name: &'static str, library: Library) -> Result<Self, Error> {
        // It is never closed: its handle is never destroyed.
        let library = Box::leak(Box::new(library));
        let absent = |error: libloading::Error| {
            Error::new(ErrorCode::SymbolMissing, [&"cublas", &name, &error, &"matrix products"])
        };
        // SAFETY: these names have had these interfaces since CUDA 11.
        let create = *unsafe { library.get::<Create>("cublasCreate_v2") }.map_err(absent)?;
        // SAFETY: as above.
        let set_stream = *unsafe { library.get::<SetStream>("cublasSetStream_v2") }.map_err(absent)?;
        // SAFETY: as above.
        let set_workspace =
            *unsafe { library.get::<SetWorkspace>("cublasSetWorkspace_v2") }.map_err(absent)?;
        // SAFETY: as above.
        let sgemm = *unsafe { library.get::<Sgemm>("cublasSgemm_v2") }.map_err(absent)?;
        let _bound = device.context().bind()?;
        let mut handle = core::ptr::null_mut();
        // SAFETY: the device's primary context is this thread's, and `handle` a handle's room.
        check("cublasCreate", unsafe { create(&raw mut handle) })?;
        let workspace =
            Tensor::<u8, Gpu>::uninit(WORKSPACE_BYTES).on(&wakeline::default_runtime()?).sync()?;
        let handle = Mutex::new(Handle(handle));
        Ok(Self(Arc::new(Loaded { name, set_stream, set_workspace, sgemm, handle, workspace })))
    }
}

impl Products<Gpu> for Cublas {
    fn name(&self) -> String {
        format!("cuBLAS ({})", self.0.name)
    }

    fn product(
        &self,
        c: Tensor<f32, Gpu>,
        a: Tensor<f32, Gpu>,
        b: Arc<Tensor<f32, Gpu>>,
        [m, k, n]: [u32; 3],
    ) -> Product<Gpu> {
        let loaded = Arc::clone(&self.0);
        let op = with_context(move |submission: &mut Submission<Gpu>| {
            let wide = |size: u32| size as usize;
            let fits =
                wide(m) * wide(n) <= c.len() && wide(m) * wide(k) <= a.len() && wide(k) * wide(n) <= b.len();
            let sizes = [m, k, n].map(c_int::try_from);
            let (true, [Ok(m), Ok(k), Ok(n)]) = (fits, sizes) else {
                return Err(Error::new(
                    ErrorCode::InvalidShape,
                    [&"of a product", &"the matrices are smaller"],
                ));
            };
            submission.retain_shared(&loaded);
            let (to, first, second, room) = (c.span(), a.span(), b.span(), loaded.workspace.span());
            let touches =
                [to.storage.write(), first.storage.read(), second.storage.read(), room.storage.write()];
            submission.touch(&touches, |_, stream| {
                let Handle(handle) = *loaded.handle.lock().unwrap_or_else(PoisonError::into_inner);
                let at = |span: wakeline::tensor::Span<'_, Gpu>| {
                    span.at().memory.address() + span.offset_bytes as u64
                };
                let (one, zero) = (1.0, 0.0);
                // SAFETY: the handle is this thread's by its lock; the stream is of its device, whose context is bound while an operation is submitted.
                check("cublasSetStream", unsafe { (loaded.set_stream)(handle, stream.raw().as_ptr()) })?;
                // SAFETY: as above; the workspace has so many bytes, and `touch` orders what uses it.
                let set = unsafe { (loaded.set_workspace)(handle, at(room), WORKSPACE_BYTES) };
                check("cublasSetWorkspace", set)?;
                // SAFETY: as above. The matrices have as many numbers, as was looked at, and `touch` orders what uses them; by columns they are their transposes, and so is the
                // product, whose factors change places. The factors of the sum are read before the call returns.
                let multiplied = unsafe {
                    (loaded.sgemm)(
                        handle,
                        AS_IT_IS,
                        AS_IT_IS,
                        n,
                        m,
                        k,
                        &raw const one,
                        at(second),
                        n,
                        at(first),
                        k,
                        &raw const zero,
                        at(to),
                        n,
                    )
                };
                check("cublasSgemm", multiplied)
            })?;
            Ok(value((c, a)))
        });
        op.boxed()
    }
}
