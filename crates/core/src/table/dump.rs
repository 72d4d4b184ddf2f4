//! What a table knows, as a trace to choose plans by.

use core::fmt::{self, Write};

use super::PointTable;
use crate::plan::ROWS_MAX;

/// The columns of a trace.
const HEADER: &str = "workload,point,rows,step,enqueue_ns,residual_ns,gpu_ns";

/// The longest name in a trace, in characters.
const NAME_CHARS_MAX: usize = 64;

/// The longest time in a trace, in nanoseconds: a minute.
const RESIDUAL_NS_MAX: u64 = 60_000_000_000;

impl<K> PointTable<K> {
    /// Writes the residuals that plans with `+adapt` keep as a trace, which `cargo xtask tune` reads: CSV with a line for each, the oldest of a
    /// point first, so that plans are chosen for the program that runs, by what it saw.
    ///
    /// `name` says what a point is called and how many batch rows its key stands for, 1 where it says nothing of them. In names, the workload's included,
    /// commas, quotes, white space and controls become `_`, and what is over 64 characters is left out; an empty one is `_`. The times that are not
    /// known, of submitting and on the device, are 0. A residual that was only bounded stands as it was learned; one of over a minute as a minute, and
    /// more than [`ROWS_MAX`] rows as so many: a trace has no more.
    ///
    /// # Errors
    ///
    /// Those of `out`; a `String` has none.
    ///
    /// ```
    /// use wakeline_core::{Nanos, PointTable, WaitPlan};
    /// let plan: WaitPlan = "poll+adapt:late_pct=1,guard_us=5,min_sleep_us=10,max_sleep_us=20000,window=256".parse()?;
    /// let mut table = PointTable::new(16)?;
    /// table.record(("sample", 8), &plan, Nanos::from_micros(4_704));
    /// let mut trace = String::new();
    /// table.write_trace("my server", |(point, rows)| (point.to_string(), *rows), &mut trace)?;
    /// assert_eq!(trace.lines().nth(1), Some("my_server,sample,8,0,0,4704000,0"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_trace<N: fmt::Display>(
        &self,
        workload: &str,
        name: impl Fn(&K) -> (N, u64),
        out: &mut impl Write,
    ) -> fmt::Result {
        writeln!(out, "{HEADER}")?;
        let mut step = 0_u64;
        for point in &self.points {
            let (point_name, rows) = name(&point.key);
            let rows = rows.min(ROWS_MAX);
            for residual_ns in point.adaptive.iter().flat_map(|adaptive| adaptive.window.in_order()) {
                let residual_ns = residual_ns.min(RESIDUAL_NS_MAX);
                write_name(out, &workload)?;
                out.write_char(',')?;
                write_name(out, &point_name)?;
                writeln!(out, ",{rows},{step},0,{residual_ns},0")?;
                step += 1;
            }
        }
        Ok(())
    }
}

fn write_name(out: &mut impl Write, name: &dyn fmt::Display) -> fmt::Result {
    let mut plain = Plain { out, chars: 0 };
    write!(plain, "{name}")?;
    if plain.chars == 0 { out.write_char('_') } else { Ok(()) }
}

/// Lets through what may stand in a name.
struct Plain<'a, W> {
    out: &'a mut W,
    chars: usize,
}

impl<W: Write> Write for Plain<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if self.chars < NAME_CHARS_MAX {
                self.chars += 1;
                let odd = c.is_whitespace() || c.is_control() || matches!(c, ',' | '"');
                self.out.write_char(if odd { '_' } else { c })?;
            }
        }
        Ok(())
    }
}
