//! Recorded steps by workload and point.

use std::collections::BTreeMap;
use std::io::BufRead;

use wakeline_core::Nanos;

use super::replay::Step;
use crate::trace::{TraceError, TraceReader};

/// What durations are learned by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keying {
    /// The readback point.
    Point,
    /// The readback point, and a bucket of so many batch rows.
    Rows(u64),
}

/// The steps of one workload.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Series {
    /// The names of its points: a key's first number stands for one of them.
    pub points: Vec<String>,
    /// In the order in which they were recorded.
    pub steps: Vec<Step>,
}

impl Series {
    /// The steps of one point, by its number.
    pub fn of_point(&self, point: u32) -> Vec<Step> {
        self.steps.iter().filter(|step| step.key.0 == point).copied().collect()
    }
}

/// The workloads of a trace, by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// Each has at least one step.
    pub workloads: BTreeMap<String, Series>,
}

impl Trace {
    /// Reads all of it.
    ///
    /// # Errors
    ///
    /// What is wrong with the trace, and where.
    ///
    /// ```
    /// use wakeline_benches::trace::{HEADER, TraceReader};
    /// use wakeline_benches::tune::{Keying, Trace};
    /// let text = format!("{}\ndecode,sample,8,0,179003,4686960,4736320\n", HEADER.join(","));
    /// let trace = Trace::read(TraceReader::new("my.csv", text.as_bytes())?, Keying::Rows(4))?;
    /// let decode = &trace.workloads["decode"];
    /// assert_eq!((decode.points.as_slice(), decode.steps[0].key), (&["sample".to_owned()][..], (0, 2)));
    /// # Ok::<(), wakeline_benches::trace::TraceError>(())
    /// ```
    pub fn read<R: BufRead>(mut reader: TraceReader<R>, keying: Keying) -> Result<Self, TraceError> {
        let mut workloads: BTreeMap<String, Series> = BTreeMap::new();
        while let Some(row) = reader.next_row()? {
            let series = workloads.entry(row.workload.to_owned()).or_default();
            let point = series.points.iter().position(|point| point == row.point).unwrap_or_else(|| {
                series.points.push(row.point.to_owned());
                series.points.len() - 1
            });
            let bucket = match keying {
                Keying::Point => 0,
                Keying::Rows(rows) => row.rows / rows.max(1),
            };
            let key = (u32::try_from(point).unwrap_or(u32::MAX), bucket);
            series.steps.push(Step { key, residual: Nanos::from_nanos(row.residual_ns) });
        }
        Ok(Self { workloads })
    }
}
