//! Recorded steps of GPU work, read from CSV a row at a time.
//!
//! The format is narrow, so that whatever is wrong is found: the header as in [`HEADER`], no quotes, no white space around
//! values, numbers in digits. Lines end with LF or CRLF; empty lines may stand at the end. A trace of any length is read in
//! constant memory.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use thiserror::Error;

/// The columns, as they stand in the first line.
pub const HEADER: [&str; 7] = ["workload", "point", "rows", "step", "enqueue_ns", "residual_ns", "gpu_ns"];

/// The longest line that is read, in bytes.
pub const LINE_BYTES_MAX: usize = 4_096;
/// The longest name of a workload or a point, in characters.
pub const NAME_CHARS_MAX: usize = 64;
/// The most batch rows of a step.
pub const ROWS_MAX: u64 = wakeline_core::ROWS_MAX;
/// The longest time that a step may have taken, in nanoseconds: a minute.
pub const STEP_NS_MAX: u64 = 60_000_000_000;

/// How many characters of a bad value an error shows.
const SHOWN_CHARS_MAX: usize = 40;

/// One recorded step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row<'a> {
    /// The program that ran.
    pub workload: &'a str,
    /// Where in the program the host waits.
    pub point: &'a str,
    /// Batch rows of the step.
    pub rows: u64,
    /// The order within the workload.
    pub step: u64,
    /// Host time spent submitting the step.
    pub enqueue_ns: u64,
    /// From the start of the wait to the end of the work.
    pub residual_ns: u64,
    /// Device time of the step.
    pub gpu_ns: u64,
}

/// What is wrong with a trace, and where.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("{file}: cannot be opened: {source}")]
    Open {
        /// The trace.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// A line cannot be read.
    #[error("{file}:{line}: cannot be read: {source}")]
    Read {
        /// The trace.
        file: String,
        /// The line, from 1.
        line: u64,
        /// What the system says.
        source: io::Error,
    },
    /// There is nothing in it.
    #[error("{file}: the trace is empty; its first line must be `{}`", HEADER.join(","))]
    Empty {
        /// The trace.
        file: String,
    },
    /// The first line is not the header.
    #[error("{file}:1: the header is `{found}`, but must be `{}`", HEADER.join(","))]
    Header {
        /// The trace.
        file: String,
        /// What stands there.
        found: Shown,
    },
    /// There are no rows.
    #[error("{file}: the trace has no steps; below the header stands one row a step")]
    NoRows {
        /// The trace.
        file: String,
    },
    /// A row has too few or too many columns.
    #[error(
        "{file}:{line}: column {} {}; a row has {} columns: {}",
        if *.found < HEADER.len() { HEADER[*.found] } else { HEADER[HEADER.len() - 1] },
        if *.found < HEADER.len() { "is missing" } else { "is not the last" },
        HEADER.len(),
        HEADER.join(",")
    )]
    Columns {
        /// The trace.
        file: String,
        /// The line, from 1.
        line: u64,
        /// How many there are.
        found: usize,
    },
    /// A value cannot be read.
    #[error("{file}:{line}: column {column}: {fault}")]
    Value {
        /// The trace.
        file: String,
        /// The line, from 1.
        line: u64,
        /// The column's name.
        column: &'static str,
        /// What is wrong and what would be right.
        fault: Fault,
    },
    /// A line is none.
    #[error("{file}:{line}: {fault}")]
    Line {
        /// The trace.
        file: String,
        /// The line, from 1.
        line: u64,
        /// What is wrong and what would be right.
        fault: LineFault,
    },
}

/// What is wrong with a value.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Fault {
    /// Something other than digits.
    #[error("`{value}` is no whole number; write digits only, as in 4686960")]
    NotANumber {
        /// What stands there.
        value: Shown,
    },
    /// A number beyond the limit.
    #[error("`{value}` is too large; the most is {max}")]
    TooLarge {
        /// What stands there.
        value: Shown,
        /// The limit.
        max: u64,
    },
    /// Nothing.
    #[error("it is empty; write {0}")]
    Empty(&'static str),
    /// A name that cannot be one.
    #[error(
        "`{value}` is no name; write 1 to {NAME_CHARS_MAX} characters without quotes, white space or controls"
    )]
    NotAName {
        /// What stands there.
        value: Shown,
    },
}

/// What is wrong with a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum LineFault {
    /// It is not UTF-8.
    #[error("it is not UTF-8 text; write the trace as UTF-8")]
    NotText,
    /// It is too long.
    #[error("the line is longer than {LINE_BYTES_MAX} bytes; write one row a line")]
    TooLong,
    /// It is empty and others follow.
    #[error("the line is empty; only the end of a trace may have empty lines")]
    Blank,
}

/// A foreign text as an error shows it: cut, and without control characters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shown(String);

impl Shown {
    fn new(text: &str) -> Self {
        let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).flat_map(char::escape_debug).collect();
        if text.chars().nth(SHOWN_CHARS_MAX).is_some() {
            shown.push_str("...");
        }
        Self(shown)
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Writes a trace row by row.
///
/// ```
/// use wakeline_measure::trace::{Row, TraceReader, TraceWriter};
/// let mut text = Vec::new();
/// let row = Row { workload: "decode", point: "sample", rows: 8, step: 0, enqueue_ns: 0, residual_ns: 4_686_960, gpu_ns: 0 };
/// TraceWriter::new(&mut text)?.row(&row)?;
/// assert_eq!(TraceReader::new("my.csv", &text[..])?.next_row()?, Some(row));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TraceWriter<W> {
    out: W,
}

impl<W: Write> TraceWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn new(mut out: W) -> io::Result<Self> {
        writeln!(out, "{}", HEADER.join(","))?;
        Ok(Self { out })
    }

    /// Writes a row. Its names are to be such as a reader takes; times and rows beyond what that takes are written as the most.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn row(&mut self, row: &Row<'_>) -> io::Result<()> {
        let Row { workload, point, step, .. } = row;
        let [enqueue_ns, residual_ns, gpu_ns] =
            [row.enqueue_ns, row.residual_ns, row.gpu_ns].map(|ns| ns.min(STEP_NS_MAX));
        let rows = row.rows.min(ROWS_MAX);
        writeln!(self.out, "{workload},{point},{rows},{step},{enqueue_ns},{residual_ns},{gpu_ns}")
    }

    /// Has all of it written.
    ///
    /// # Errors
    ///
    /// Those of `out`, of rows before included where it keeps them back.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Reads a trace row by row.
///
/// ```
/// use wakeline_measure::trace::{HEADER, TraceReader};
/// let text = format!("{}\ndecode-graph,sample,8,0,179003,4686960,4736320\n", HEADER.join(","));
/// let mut trace = TraceReader::new("my.csv", text.as_bytes())?;
/// while let Some(row) = trace.next_row()? {
///     assert_eq!((row.workload, row.rows, row.residual_ns), ("decode-graph", 8, 4_686_960));
/// }
/// # Ok::<(), wakeline_measure::trace::TraceError>(())
/// ```
#[derive(Debug)]
pub struct TraceReader<R> {
    input: R,
    file: String,
    /// The number of the line in `text`, from 1.
    line: u64,
    text: Vec<u8>,
    rows: u64,
}

impl TraceReader<BufReader<File>> {
    /// Opens a file and checks its header.
    ///
    /// # Errors
    ///
    /// [`TraceError::Open`], or that of [`new`](TraceReader::new).
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let file = path.display().to_string();
        match File::open(path) {
            Ok(input) => Self::new(file, BufReader::new(input)),
            Err(source) => Err(TraceError::Open { file, source }),
        }
    }
}

impl<R: BufRead> TraceReader<R> {
    /// Reads from `input` and checks its header; errors call it `file`.
    ///
    /// # Errors
    ///
    /// [`TraceError::Empty`], [`TraceError::Header`], or what makes the first line none.
    pub fn new(file: impl Into<String>, input: R) -> Result<Self, TraceError> {
        let mut trace = Self { input, file: file.into(), line: 0, text: Vec::new(), rows: 0 };
        let Some(header) = trace.next_line()? else {
            return Err(TraceError::Empty { file: trace.file });
        };
        // Spreadsheets write a byte order mark.
        let header = header.strip_prefix('\u{FEFF}').unwrap_or(header);
        if header.split(',').eq(HEADER) {
            return Ok(trace);
        }
        let found = Shown::new(header);
        Err(TraceError::Header { file: trace.file, found })
    }

    /// The next row; `None` behind the last.
    ///
    /// # Errors
    ///
    /// What is wrong with it; [`TraceError::NoRows`] where there is none at all.
    pub fn next_row(&mut self) -> Result<Option<Row<'_>>, TraceError> {
        if self.next_line()?.is_none() {
            if self.rows == 0 {
                return Err(TraceError::NoRows { file: self.file.clone() });
            }
            return Ok(None);
        }
        self.rows += 1;
        self.row().map(Some)
    }

    /// The row in `text`.
    fn row(&self) -> Result<Row<'_>, TraceError> {
        let text = str::from_utf8(&self.text).map_err(|_| self.line_fault(LineFault::NotText))?;
        let mut columns = [""; HEADER.len()];
        let mut found = 0;
        for value in text.split(',') {
            if let Some(column) = columns.get_mut(found) {
                *column = value;
            }
            found += 1;
        }
        if found != HEADER.len() {
            return Err(TraceError::Columns { file: self.file.clone(), line: self.line, found });
        }
        let fault = |column: usize| {
            move |fault| TraceError::Value {
                file: self.file.clone(),
                line: self.line,
                column: HEADER[column],
                fault,
            }
        };
        let number_at = |column: usize, max| number(columns[column], max).map_err(fault(column));
        Ok(Row {
            workload: name(columns[0]).map_err(fault(0))?,
            point: name(columns[1]).map_err(fault(1))?,
            rows: number_at(2, ROWS_MAX)?,
            step: number_at(3, u64::MAX)?,
            enqueue_ns: number_at(4, STEP_NS_MAX)?,
            residual_ns: number_at(5, STEP_NS_MAX)?,
            gpu_ns: number_at(6, STEP_NS_MAX)?,
        })
    }

    /// Reads a line into `text`, without its end. `None` at the end of the input, empty lines before it included.
    fn next_line(&mut self) -> Result<Option<&str>, TraceError> {
        let mut blank = None;
        loop {
            self.text.clear();
            self.line += 1;
            // One byte more than allowed tells a line that is too long from one that just fits; two are its end.
            let limit = (LINE_BYTES_MAX + 3) as u64;
            let read = self.input.by_ref().take(limit).read_until(b'\n', &mut self.text);
            match read {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(source) => {
                    return Err(TraceError::Read { file: self.file.clone(), line: self.line, source });
                }
            }
            if self.text.last() == Some(&b'\n') {
                self.text.pop();
                if self.text.last() == Some(&b'\r') {
                    self.text.pop();
                }
            }
            if self.text.len() > LINE_BYTES_MAX {
                return Err(self.line_fault(LineFault::TooLong));
            }
            if self.text.is_empty() {
                blank = blank.or(Some(self.line));
                continue;
            }
            if let Some(line) = blank {
                self.line = line;
                return Err(self.line_fault(LineFault::Blank));
            }
            break;
        }
        match str::from_utf8(&self.text) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(self.line_fault(LineFault::NotText)),
        }
    }

    fn line_fault(&self, fault: LineFault) -> TraceError {
        TraceError::Line { file: self.file.clone(), line: self.line, fault }
    }
}

fn name(text: &str) -> Result<&str, Fault> {
    let bad = |c: char| c.is_control() || c.is_whitespace() || c == '"';
    if text.is_empty() {
        return Err(Fault::Empty("a name"));
    }
    if text.chars().count() > NAME_CHARS_MAX || text.contains(bad) {
        return Err(Fault::NotAName { value: Shown::new(text) });
    }
    Ok(text)
}

fn number(text: &str, max: u64) -> Result<u64, Fault> {
    if text.is_empty() {
        return Err(Fault::Empty("digits, as in 4686960"));
    }
    if text.contains(|c: char| !c.is_ascii_digit()) {
        return Err(Fault::NotANumber { value: Shown::new(text) });
    }
    // All that can still go wrong is an overflow.
    let number = text.parse().ok().filter(|number| *number <= max);
    number.ok_or_else(|| Fault::TooLarge { value: Shown::new(text), max })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "decode,sample,8,0,1,4686960,3";

    /// The points and residuals of a trace of the header and `rows`.
    fn read(rows: &str) -> Result<Vec<(String, u64)>, TraceError> {
        let text = format!("{}\n{rows}", HEADER.join(","));
        let mut trace = TraceReader::new("t.csv", text.as_bytes())?;
        let mut read = Vec::new();
        while let Some(row) = trace.next_row()? {
            read.push((row.point.to_owned(), row.residual_ns));
        }
        Ok(read)
    }

    fn error(rows: &str) -> String {
        read(rows).unwrap_err().to_string()
    }

    #[test]
    fn rows_are_read_whatever_ends_the_lines_and_the_file() {
        let expected = vec![("sample".to_owned(), 4_686_960); 2];
        for rows in [
            format!("{GOOD}\n{GOOD}\n"),
            format!("{GOOD}\n{GOOD}"),
            format!("{GOOD}\r\n{GOOD}\r\n"),
            format!("{GOOD}\n{GOOD}\n\n\r\n"),
        ] {
            assert_eq!(read(&rows).unwrap(), expected, "{rows:?}");
        }
    }

    #[test]
    fn a_bad_value_is_refused_by_line_and_column() {
        for (row, message) in [
            (
                "decode,sample,8,0,1,fast,3",
                "t.csv:3: column residual_ns: `fast` is no whole number; write digits only, as in 4686960",
            ),
            (
                "decode,sample,8,0,1,-5,3",
                "t.csv:3: column residual_ns: `-5` is no whole number; write digits only, as in 4686960",
            ),
            (
                "decode,sample,8,0,1,99999999999999999999999,3",
                "t.csv:3: column residual_ns: `99999999999999999999999` is too large; the most is 60000000000",
            ),
            (
                "decode,sample,1000000001,0,1,5,3",
                "t.csv:3: column rows: `1000000001` is too large; the most is 1000000000",
            ),
            ("decode,sample,8,,1,5,3", "t.csv:3: column step: it is empty; write digits, as in 4686960"),
            (",sample,8,0,1,5,3", "t.csv:3: column workload: it is empty; write a name"),
            (
                "decode,a point,8,0,1,5,3",
                "t.csv:3: column point: `a point` is no name; write 1 to 64 characters without quotes, white space or \
                 controls",
            ),
        ] {
            assert_eq!(error(&format!("{GOOD}\n{row}\n{GOOD}\n")), message);
        }
    }

    #[test]
    fn a_row_of_another_width_is_refused() {
        let columns = "a row has 7 columns: workload,point,rows,step,enqueue_ns,residual_ns,gpu_ns";
        assert_eq!(error("decode,sample,8"), format!("t.csv:2: column step is missing; {columns}"));
        assert_eq!(error(&format!("{GOOD},9")), format!("t.csv:2: column gpu_ns is not the last; {columns}"));
    }

    #[test]
    fn a_line_that_is_none_is_refused() {
        assert_eq!(
            error(&format!("{GOOD}\n\n\n{GOOD}\n")),
            "t.csv:3: the line is empty; only the end of a trace may have empty lines"
        );
        let long = "x".repeat(LINE_BYTES_MAX + 1);
        assert_eq!(error(&long), "t.csv:2: the line is longer than 4096 bytes; write one row a line");
        let bytes = [HEADER.join(",").as_bytes(), b"\ndecode,\xFF\n"].concat();
        let error = TraceReader::new("t.csv", &bytes[..]).unwrap().next_row().unwrap_err();
        assert_eq!(error.to_string(), "t.csv:2: it is not UTF-8 text; write the trace as UTF-8");
    }

    #[test]
    fn a_line_of_the_greatest_length_is_read() {
        let row = format!("{},sample,8,0,1,5,3", "x".repeat(LINE_BYTES_MAX - "sample,8,0,1,5,3".len() - 1));
        assert_eq!(row.len(), LINE_BYTES_MAX);
        assert!(error(&format!("{row}\r\n")).contains("column workload"), "too long a name, but a line");
    }

    #[test]
    fn a_trace_without_header_or_rows_is_refused() {
        let header = HEADER.join(",");
        let new = |text: &'static str| TraceReader::new("t.csv", text.as_bytes()).unwrap_err().to_string();
        assert_eq!(new(""), format!("t.csv: the trace is empty; its first line must be `{header}`"));
        assert_eq!(new("\n"), format!("t.csv: the trace is empty; its first line must be `{header}`"));
        assert_eq!(new(GOOD), format!("t.csv:1: the header is `{GOOD}`, but must be `{header}`"));
        assert_eq!(error(""), "t.csv: the trace has no steps; below the header stands one row a step");
    }

    #[test]
    fn what_is_written_can_be_read() {
        let most = u64::MAX;
        let row = Row {
            workload: "a",
            point: "b",
            rows: most,
            step: most,
            enqueue_ns: most,
            residual_ns: most,
            gpu_ns: most,
        };
        let mut text = Vec::new();
        TraceWriter::new(&mut text).unwrap().row(&row).unwrap();
        let mut trace = TraceReader::new("t.csv", &text[..]).unwrap();
        let read = trace.next_row().unwrap().unwrap();
        assert_eq!((read.rows, read.step, read.residual_ns), (ROWS_MAX, most, STEP_NS_MAX));
    }

    #[test]
    fn a_byte_order_mark_is_passed_over() {
        let text = format!("\u{FEFF}{}\n{GOOD}\n", HEADER.join(","));
        assert!(TraceReader::new("t.csv", text.as_bytes()).unwrap().next_row().unwrap().is_some());
    }

    #[test]
    fn foreign_text_is_cut_and_escaped() {
        let message = error(&format!("decode,sample,8,0,1,\u{1b}[31m{},3", "9".repeat(99)));
        assert!(
            message.contains("`\\u{1b}[31m9") && message.contains("...`") && message.len() < 200,
            "{message}"
        );
    }
}
