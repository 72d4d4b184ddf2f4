//! The kernels the fake knows by their names. Those it does not know end at once.

use super::clock;
use super::state::State;
use crate::Status;

#[derive(Clone, Copy, Debug)]
pub(super) enum Kernel {
    /// `occupy(u64 ns)`
    Occupy {
        ns: u64,
    },
    /// `occupy_until(u64 at)`: by the device's clock.
    OccupyUntil {
        at: u64,
    },
    /// `store_word(u64 address, u64 value, u64 ns)`: stores when the time is over, and ends.
    StoreWord {
        address: u64,
        value: u64,
        ns: u64,
    },
    /// `stamp(u64 address)`: stores the device's clock, in ns.
    Stamp {
        address: u64,
    },
    /// `timed_step(u64 length, u64 end)`: reads how long it takes when it begins, and stores the device's clock at its end.
    TimedStep {
        length: u64,
        end: u64,
    },
    /// `timed_store(u64 length, u64 end, u64 address, u64 value)`: the same, and stores the value after the clock.
    TimedStore {
        length: u64,
        end: u64,
        address: u64,
        value: u64,
    },
    /// `affine(u64 address, u64 count, u64 factor, u64 addend)`: of so many `u32`, each becomes itself times the factor plus the addend.
    Affine {
        address: u64,
        count: u64,
        factor: u64,
        addend: u64,
    },
    /// `saxpy(f32 *z, f32 a, const f32 *x, const f32 *y, u32 n)`: of so many numbers, `z = a * x + y`.
    Saxpy {
        to: u64,
        factor: f32,
        from: u64,
        plus: u64,
        count: u32,
    },
    /// `matmul(f32 *c, const f32 *a, const f32 *b, u32 m, u32 k, u32 n)`: `c = a * b`, row by row.
    Matmul {
        to: u64,
        first: u64,
        second: u64,
        sizes: [u32; 3],
    },
    /// `add_bias(f32 *y, const f32 *bias, u32 rows, u32 columns, u32 relu)`: to each row; and nothing is below zero then, where that is asked for.
    AddBias {
        to: u64,
        bias: u64,
        sizes: [u32; 2],
        relu: bool,
    },
    /// `traps()`, `illegal_address()`, `assert_fails()`
    Fault(Status),
    Unknown,
}

impl Kernel {
    /// The kernel of that name; none if a known one has other parameters.
    pub(super) fn of(name: &str, parameters: &[u64]) -> Option<Self> {
        Some(match (name, parameters) {
            ("occupy", &[ns]) => Self::Occupy { ns },
            ("occupy_until", &[at]) => Self::OccupyUntil { at },
            ("store_word", &[address, value, ns]) => Self::StoreWord { address, value, ns },
            ("stamp", &[address]) => Self::Stamp { address },
            ("timed_step", &[length, end]) => Self::TimedStep { length, end },
            ("timed_store", &[length, end, address, value]) => {
                Self::TimedStore { length, end, address, value }
            }
            ("affine", &[address, count, factor, addend]) => Self::Affine { address, count, factor, addend },
            ("saxpy", &[to, factor, from, plus, count]) => {
                Self::Saxpy { to, factor: f32::from_bits(low(factor)), from, plus, count: low(count) }
            }
            ("matmul", &[to, first, second, m, k, n]) => {
                Self::Matmul { to, first, second, sizes: [m, k, n].map(low) }
            }
            ("add_bias", &[to, bias, rows, columns, relu]) => {
                Self::AddBias { to, bias, sizes: [rows, columns].map(low), relu: low(relu) != 0 }
            }
            ("traps", []) => Self::Fault(Status::LAUNCH_FAILED),
            ("illegal_address", []) => Self::Fault(Status::ILLEGAL_ADDRESS),
            ("assert_fails", []) => Self::Fault(Status::ASSERT),
            (
                "occupy" | "occupy_until" | "store_word" | "stamp" | "timed_step" | "timed_store" | "affine"
                | "saxpy" | "matmul" | "add_bias" | "traps" | "illegal_address" | "assert_fails",
                _,
            ) => return None,
            _ => Self::Unknown,
        })
    }

    pub(super) fn takes_ns(self) -> u64 {
        match self {
            Self::Occupy { ns } | Self::StoreWord { ns, .. } => ns,
            _ => 0,
        }
    }

    /// The memory it writes.
    pub(super) fn writes(self) -> Option<(u64, usize)> {
        match self {
            Self::StoreWord { address, .. } | Self::Stamp { address } => Some((address, 8)),
            Self::TimedStep { end, .. } | Self::TimedStore { end, .. } => Some((end, 8)),
            Self::Affine { address, count, .. } => {
                Some((address, usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(size_of::<u32>())))
            }
            Self::Saxpy { to, count, .. } => Some((to, count as usize * size_of::<f32>())),
            Self::Matmul { to, sizes: [m, _, n], .. } => Some((to, numbers([m, n]))),
            Self::AddBias { to, sizes, .. } => Some((to, numbers(sizes))),
            _ => None,
        }
    }
}

/// The bytes of a matrix.
fn numbers([rows, columns]: [u32; 2]) -> usize {
    (rows as usize).saturating_mul(columns as usize).saturating_mul(size_of::<f32>())
}

/// The low half of a word.
fn low(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).unwrap_or_default()
}

impl State {
    pub(super) fn run(&mut self, context: u64, kernel: Kernel, at: u64) {
        match kernel {
            Kernel::StoreWord { address, value, .. } => self.kernel_stores(context, address, value),
            Kernel::Stamp { address } | Kernel::TimedStep { end: address, .. } => {
                self.kernel_stamps(context, address, at);
            }
            Kernel::TimedStore { end, address, value, .. } => {
                self.kernel_stamps(context, end, at);
                self.kernel_stores(context, address, value);
            }
            Kernel::Affine { address, factor, addend, .. } => {
                let bytes = kernel.writes().map_or(0, |(_, bytes)| bytes);
                if !self.pages.affine(address, bytes, low(factor), low(addend)) {
                    self.misses(context, address, "a kernel's access");
                }
            }
            Kernel::Saxpy { to, factor, from, plus, count } => {
                if !self.pages.saxpy(to, factor, from, plus, count as usize) {
                    self.misses(context, to, "a kernel's access");
                }
            }
            Kernel::Matmul { to, first, second, sizes } => {
                if !self.pages.matmul(to, first, second, sizes.map(|size| size as usize)) {
                    self.misses(context, to, "a kernel's access");
                }
            }
            Kernel::AddBias { to, bias, sizes, relu } => {
                if !self.pages.add_bias(to, bias, sizes.map(|size| size as usize), relu) {
                    self.misses(context, to, "a kernel's access");
                }
            }
            Kernel::Fault(status) => self.fault(context, status),
            Kernel::Occupy { .. } | Kernel::OccupyUntil { .. } | Kernel::Unknown => {}
        }
    }

    /// By how much the device's clock is ahead of the host's.
    pub(super) fn clock_offset(&self) -> i64 {
        self.options.clock_offset_ns.unwrap_or_else(clock::offset_to_realtime)
    }

    fn kernel_stamps(&mut self, context: u64, address: u64, at: u64) {
        let stamp = at.wrapping_add_signed(self.clock_offset());
        self.kernel_stores(context, address, stamp);
    }

    fn kernel_stores(&mut self, context: u64, address: u64, value: u64) {
        if !self.pages.store(address, value) {
            self.misses(context, address, "a kernel's store");
        }
    }
}
