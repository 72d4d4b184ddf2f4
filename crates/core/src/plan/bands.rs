//! Bands: a plan for each size of batch.

use alloc::format;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use super::{WaitPlan, parse};
use crate::error::Error;
use crate::lex::Fault;

/// The most plans that bands can have, the first one counted.
pub const BANDS_MAX: usize = 64;
/// The highest threshold of a band, in rows. The lowest is 1.
pub const ROWS_MAX: u64 = 1_000_000_000;

/// A plan for each size of batch: `<plan>;rows>=32:<plan>;rows>=64:<plan>`.
///
/// The first plan is for batches below the first threshold; thresholds rise strictly. A lone plan is bands too.
///
/// ```
/// use wakeline_core::{WaitBands, WaitPlan};
/// let bands: WaitBands = "poll;rows>=32:flag:park_us=50,backstop_us=1000;rows>=256:block".parse()?;
/// assert_eq!(*bands.choose(31), WaitPlan::poll());
/// assert_eq!(*bands.choose(32), WaitPlan::flag(50, 1_000)?);
/// assert_eq!(*bands.choose(u64::MAX), WaitPlan::block());
///
/// let same = WaitBands::from(WaitPlan::poll())
///     .with_band(32, WaitPlan::flag(50, 1_000)?)?
///     .with_band(256, WaitPlan::block())?;
/// assert_eq!(bands, same);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WaitBands {
    first: WaitPlan,
    /// From how many rows on, and the plan. Strictly rising.
    above: Vec<(u64, WaitPlan)>,
}

impl WaitBands {
    /// The plan for a batch of this many rows. A binary search over the bands, no allocation.
    pub fn choose(&self, rows: u64) -> &WaitPlan {
        let reached = self.above.partition_point(|(from, _)| *from <= rows);
        self.above[..reached].last().map_or(&self.first, |(_, plan)| plan)
    }

    /// The same bands with one more: `plan` for batches of `from_rows` and more.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidPlan`](crate::ErrorCode::InvalidPlan), as from the text, unless `from_rows` is 1 to
    /// [`ROWS_MAX`] and above every threshold already there, and at most [`BANDS_MAX`] plans result.
    pub fn with_band(mut self, from_rows: u64, plan: WaitPlan) -> Result<Self, Error> {
        self.above.push((from_rows, plan));
        format!("{self}").parse()
    }

    /// Each band's first row and plan, rising; the first band starts at 0.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &WaitPlan)> {
        core::iter::once((0, &self.first)).chain(self.above.iter().map(|(from, plan)| (*from, plan)))
    }
}

impl From<WaitPlan> for WaitBands {
    /// One band: this plan for every batch.
    fn from(plan: WaitPlan) -> Self {
        Self { first: plan, above: Vec::new() }
    }
}

impl FromStr for WaitBands {
    type Err = Error;

    /// Reads plans and their thresholds.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidPlan`](crate::ErrorCode::InvalidPlan): the text (cut after 200 characters), the column of
    /// the first fault in the whole text, what is wrong and what would be right.
    fn from_str(text: &str) -> Result<Self, Error> {
        parse::read(text, bands)
    }
}

impl fmt::Display for WaitBands {
    /// As [`FromStr`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        self.above.iter().try_for_each(|(from, plan)| write!(f, ";rows>={from}:{plan}"))
    }
}

/// `bands = plan *( ";rows>=" number ":" plan )`
fn bands(cursor: &mut parse::Cursor<'_>) -> Result<WaitBands, Fault> {
    let mut bands = WaitBands::from(parse::plan(cursor)?);
    while cursor.take(";") {
        let start = cursor.at();
        if bands.above.len() + 1 == BANDS_MAX {
            return Err(Fault::new(start, format!("too many bands: at most {BANDS_MAX} plans")));
        }
        if !cursor.take("rows>=") {
            let message =
                "a band is missing here: it is written `rows>=32:` and a plan, as in `poll;rows>=32:block`";
            return Err(Fault::new(start, message));
        }
        let at = cursor.at();
        let from = cursor.number("rows>=", (1, ROWS_MAX), &[':', ';'])?;
        if let Some((last, _)) = bands.above.last().filter(|(last, _)| *last >= from) {
            let message = format!(
                "`rows>={from}` does not rise above `rows>={last}`: sort the bands, each threshold once"
            );
            return Err(Fault::new(at, message));
        }
        if !cursor.take(":") {
            let message =
                format!("the plan of `rows>={from}` is missing: it is written `rows>={from}:block`");
            return Err(Fault::new(cursor.at(), message));
        }
        bands.above.push((from, parse::plan(cursor)?));
    }
    Ok(bands)
}
