//! The table of a run for a terminal: every suite with its cases, every case with its arms.
//!
//! Long names are broken over lines, never cut: plans differ at their ends. No character of a file gets to command the
//! terminal.

use std::fmt::{self, Write as _};

use super::digits::{self, MISSING};
use super::names;
use super::read::RunFile;
use crate::ab::schema::{Cell, Check};
use crate::plain;

/// The widest that a column of names gets, in characters.
const NAME_CHARS_MAX: usize = 40;

/// The most columns of ratios.
const RATIOS_MAX: usize = 2;

/// Rows of cells in columns as wide as they must be.
#[derive(Debug, Default)]
pub(crate) struct Grid {
    rows: Vec<Vec<String>>,
    /// How many columns hold names, which are broken and stand to the left; numbers stand to the right.
    names: usize,
}

impl Grid {
    pub(crate) fn new(names: usize, head: Vec<String>) -> Self {
        Self { rows: vec![head], names }
    }

    pub(crate) fn row(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let broken: Vec<Vec<Vec<String>>> = self.rows.iter().map(|row| self.broken(row)).collect();
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = broken.iter().filter_map(|row| row.get(column)).flatten();
            cells.map(|line| line.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &broken {
            for line in 0..row.iter().map(Vec::len).max().unwrap_or(0) {
                let mut text = String::new();
                for (column, width) in widths.iter().copied().enumerate() {
                    let cell = row.get(column).and_then(|cell| cell.get(line)).map_or("", String::as_str);
                    if column < self.names {
                        write!(text, "  {cell:<width$}")?;
                    } else {
                        write!(text, "  {cell:>width$}")?;
                    }
                }
                writeln!(f, "{}", text.trim_end())?;
            }
        }
        Ok(())
    }
}

impl Grid {
    /// Each cell as the lines that it takes.
    fn broken(&self, row: &[String]) -> Vec<Vec<String>> {
        let cells = row.iter().enumerate();
        cells
            .map(|(column, cell)| if column < self.names { broken(cell) } else { vec![cell.clone()] })
            .collect()
    }
}

/// A name as lines of at most [`NAME_CHARS_MAX`], broken behind a comma, a blank, a slash or before a plus where it can be.
fn broken(name: &str) -> Vec<String> {
    let chars: Vec<char> = plain(name).chars().collect();
    let mut lines = Vec::new();
    let mut rest = &chars[..];
    while rest.len() > NAME_CHARS_MAX {
        let may = |at: &usize| " ,/;".contains(rest[at - 1]) || rest[*at] == '+';
        let at = (NAME_CHARS_MAX / 2..=NAME_CHARS_MAX).rev().find(may).unwrap_or(NAME_CHARS_MAX);
        lines.push(rest[..at].iter().collect::<String>());
        rest = &rest[at..];
    }
    lines.push(rest.iter().collect());
    lines
}

/// The whole run as a table.
pub fn table(file: &RunFile) -> String {
    let mut text = String::new();
    // Writing into a string does not fail.
    let _ = write_run(&mut text, file);
    text
}

fn write_run(text: &mut String, file: &RunFile) -> fmt::Result {
    let environment = &file.run.environment;
    writeln!(
        text,
        "{}: {}{} on {}, {}, {}",
        plain(&file.name),
        plain(&file.run.device),
        if file.run.quick { ", a quick run," } else { "" },
        plain(&environment.cpu),
        digits::counted(environment.cpus, "CPU"),
        digits::date(environment.began_unix_s),
    )?;
    let last = file.end.iter().flat_map(|end| &end.checks);
    for Check { name, found, .. } in file.run.checks.iter().chain(last).filter(|check| !check.good) {
        writeln!(text, "  NOT GOOD  {}: {}", plain(name), plain(found))?;
    }
    if file.end.is_none() {
        let line = file.last_line;
        writeln!(
            text,
            "  CUT OFF  at line {line}: the file has no line of kind `end`, and what came after is missing"
        )?;
    }
    for suite in file.suites() {
        writeln!(text, "\n{}", plain(suite))?;
        let cells: Vec<&Cell> = file.cells_of(suite).collect();
        if cells.is_empty() {
            writeln!(text, "  nothing was recorded")?;
            continue;
        }
        write!(text, "{}", suite_grid(file, suite, &cells))?;
        for cell in cells {
            for note in &cell.notes {
                writeln!(text, "  note: {}, {}: {}", plain(&cell.case), plain(&cell.arm), plain(note))?;
            }
        }
    }
    Ok(())
}

/// One row a cell; a column for what any cell of the suite has.
fn suite_grid(file: &RunFile, suite: &str, cells: &[&Cell]) -> Grid {
    let metrics = names::metrics_of(suite, cells.iter().flat_map(|cell| cell.metrics.keys()));
    let latencies = cells.iter().any(|cell| cell.latency.is_some());
    let has_ratio = |name: &&str| {
        cells.iter().any(|cell| cell.metrics.get(*name).is_some_and(|metric| metric.ratio.is_some()))
    };
    let ratios: Vec<&str> = metrics.iter().copied().filter(has_ratio).take(RATIOS_MAX).collect();
    // With quantiles, the mean of the latency adds little.
    let values: Vec<&str> = metrics.iter().copied().filter(|name| !latencies || *name != "latency").collect();
    let mut head = vec!["case".to_owned(), "arm".to_owned()];
    if latencies {
        head.extend(["p50".to_owned(), "p99".to_owned()]);
    }
    head.extend(values.iter().map(|name| plain(name)));
    head.extend(ratios.iter().map(|name| format!("{} to base", plain(name))));
    let mut grid = Grid::new(2, head);
    for (case, cells) in file.cases_of(suite) {
        for (index, cell) in cells.into_iter().enumerate() {
            let is_base = cell.arm == cell.base;
            let arm = if is_base { format!("{} (base)", cell.arm) } else { cell.arm.clone() };
            let mut row = vec![if index == 0 { case.to_owned() } else { String::new() }, arm];
            if latencies {
                let latency = cell.latency.filter(|latency| latency.count > 0);
                let quantile = |ns: Option<u64>| ns.map_or_else(missing, digits::ns);
                row.push(quantile(latency.map(|latency| latency.p50_ns)));
                row.push(quantile(latency.map(|latency| latency.p99_ns)));
            }
            for name in &values {
                let metric = cell.metrics.get(*name);
                row.push(metric.map_or_else(missing, |metric| {
                    plain(&digits::quantity(metric.value.mean, &metric.unit))
                }));
            }
            for name in &ratios {
                let ratio = cell.metrics.get(*name).and_then(|metric| metric.ratio);
                row.push(if is_base { "1".to_owned() } else { ratio.map_or_else(missing, digits::ratio) });
            }
            grid.row(row);
        }
    }
    grid
}

fn missing() -> String {
    MISSING.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_broken_and_lose_nothing() {
        let plan = "flag:park_us=50,backstop_us=1000+predict:margin_us=50,min_sleep_us=100,max_sleep_us=20000,window=16+trust";
        let lines = broken(plan);
        assert_eq!(lines.concat(), plan);
        assert_eq!(lines[0], "flag:park_us=50,backstop_us=1000");
        assert!(lines.iter().all(|line| line.chars().count() <= NAME_CHARS_MAX), "{lines:?}");
        assert_eq!(broken(&"x".repeat(90)).len(), 3);
        assert_eq!(broken(""), [""]);
    }

    #[test]
    fn columns_line_up() {
        let mut grid = Grid::new(1, vec!["arm".into(), "p50".into()]);
        grid.row(vec!["spin".into(), "1.50 us".into()]);
        grid.row(vec!["x".repeat(50), "9".into()]);
        let text = grid.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].chars().count(), lines[1].chars().count());
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[0].starts_with("  arm  ") && lines[2].ends_with("        9"), "{text}");
    }
}
