//! Text that is too long: refused by an error that is short, in bounded memory and time.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write;
use std::io::{BufReader, Read};

use wakeline_core::{ErrorCode, WaitBands, WaitPlan};
use wakeline_measure::trace::{LINE_BYTES_MAX, TraceError, TraceReader};

const MIB: usize = 1 << 20;

/// The longest message of an error about text of any length.
const MESSAGE_BYTES_MAX: usize = 2_000;

/// Lines, one after the other, without their being anywhere.
struct Lines {
    line: Vec<u8>,
    at: usize,
    left: u64,
}

impl Read for Lines {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let mut len = 0;
        while len < out.len() && self.left > 0 {
            let rest = &self.line[self.at..];
            let take = rest.len().min(out.len() - len).min(usize::try_from(self.left).unwrap_or(usize::MAX));
            out[len..len + take].copy_from_slice(&rest[..take]);
            len += take;
            self.left -= take as u64;
            self.at = (self.at + take) % self.line.len();
        }
        Ok(len)
    }
}

fn trace(bytes: u64) -> TraceReader<impl std::io::BufRead> {
    let header = "workload,point,rows,step,enqueue_ns,residual_ns,gpu_ns\n".as_bytes();
    let line = b"decode,sample,8,17,1000,5000000,4900000\n".to_vec();
    let left = bytes / line.len() as u64 * line.len() as u64;
    let rows = Lines { line, at: 0, left };
    TraceReader::new("generated", BufReader::with_capacity(MIB, header.chain(rows))).unwrap()
}

fn rows_of(bytes: u64) -> u64 {
    let (mut reader, mut rows) = (trace(bytes), 0);
    while let Some(row) = reader.next_row().unwrap() {
        assert_eq!((row.step, row.residual_ns), (17, 5_000_000));
        rows += 1;
    }
    rows
}

#[test]
fn a_plan_of_a_mebibyte_is_refused_with_its_column_by_a_short_error() {
    let junk = [
        "x".repeat(MIB),
        "flag:".to_owned() + &"park_us=1,".repeat(MIB / 10),
        " ".repeat(MIB),
        "é".repeat(MIB / 2),
    ];
    for text in junk {
        for error in [text.parse::<WaitPlan>().unwrap_err(), text.parse::<WaitBands>().unwrap_err()] {
            assert_eq!(error.code(), ErrorCode::InvalidPlan);
            assert!(error.to_string().len() < MESSAGE_BYTES_MAX, "{} bytes", error.to_string().len());
            assert!(error.to_string().contains("column"), "{error}");
        }
    }
    let mut bands = "poll".to_owned();
    for rows in 1..MIB / 16 {
        write!(bands, ";rows>={rows}:poll").unwrap();
    }
    let error = bands.parse::<WaitBands>().unwrap_err();
    assert!(
        error.to_string().contains("too many bands") && error.to_string().len() < MESSAGE_BYTES_MAX,
        "{error}"
    );
}

#[test]
fn a_trace_of_64_mebibytes_is_read_row_by_row() {
    assert_eq!(rows_of(64 << 20), (64 << 20) / 40);
}

#[test]
#[ignore = "takes minutes without optimization: cargo test --release -p wakeline-fuzz --test limits -- --ignored"]
fn a_trace_of_a_gibibyte_is_read_row_by_row() {
    assert_eq!(rows_of(1 << 30), (1 << 30) / 40);
}

#[test]
fn a_line_without_an_end_is_refused_before_it_is_read() {
    let header = "workload,point,rows,step,enqueue_ns,residual_ns,gpu_ns\n".as_bytes();
    let mut endless = Lines { line: b"x".to_vec(), at: 0, left: u64::MAX };
    let input = BufReader::new(header.chain(endless.by_ref()));
    let error = TraceReader::new("endless", input).unwrap().next_row().unwrap_err();
    assert!(!matches!(error, TraceError::Open { .. }), "{error}");
    assert!(error.to_string().contains(&LINE_BYTES_MAX.to_string()), "{error}");
    assert!(u64::MAX - endless.left < 1 << 20, "{} bytes were read", u64::MAX - endless.left);
}
