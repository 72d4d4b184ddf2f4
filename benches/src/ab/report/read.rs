//! Reading a run's file: all of it, or an error that names the line and what would be right.
//!
//! A file that was cut off is still read: a run that was ended early is shown as far as it came, and shown to be short. A file that lost lines of its
//! middle is damaged, and not read; so is one that holds what no run has: see [`limits`](super::limits).

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use serde_json::Value;

use super::limits;
use crate::ab::schema::{Cell, End, Line, Run, Timeline, VERSION};

/// The versions of the schema that are read here.
pub const KNOWN: [u32; 1] = [VERSION];

/// What a run's file holds.
#[derive(Clone, PartialEq, Debug)]
pub struct RunFile {
    /// The file's name, as given.
    pub name: String,
    /// Its first line.
    pub run: Run,
    /// The cells, in the order of the file; each suite, case and arm at most once.
    pub cells: Vec<Cell>,
    /// The timelines, in the order of the file.
    pub timelines: Vec<Timeline>,
    /// Its last line; `None` where the run was cut off.
    pub end: Option<End>,
    /// The number of the last line that anything stands in, from 1: where a run was cut off, it was there, in the middle of it or behind it.
    pub last_line: usize,
}

impl RunFile {
    /// Reads the file at `path`.
    ///
    /// # Errors
    ///
    /// [`ReadError`]: it cannot be read, or is no run's file of a known version.
    pub fn load(path: &Path) -> Result<Self, ReadError> {
        let name = path.to_string_lossy();
        let mut bytes = Vec::new();
        let opened =
            File::open(path).and_then(|file| file.take(limits::BYTES_MAX + 1).read_to_end(&mut bytes));
        let length = opened.map_err(|error| ReadFault::Io(error).of(&name))?;
        if length as u64 > limits::BYTES_MAX {
            return Err(ReadFault::TooLarge.of(&name));
        }
        let text = match core::str::from_utf8(&bytes) {
            Ok(text) => text,
            Err(error) => {
                let (good, _) = bytes.split_at(error.valid_up_to());
                // Without a length the file ends in the middle of a character: it was cut off there.
                match core::str::from_utf8(good) {
                    Ok(text) if error.error_len().is_none() => text,
                    _ => return Err(ReadFault::NoUtf8.at(&name, good.split(|byte| *byte == b'\n').count())),
                }
            }
        };
        Self::read(&name, text)
    }

    /// Reads `text`, which errors call `name`. Empty lines are passed over.
    ///
    /// # Errors
    ///
    /// [`ReadError`]: it is no run's file of a known version.
    ///
    /// ```
    /// use wakeline_benches::ab::report::RunFile;
    /// let error = RunFile::read("old.jsonl", "{\"kind\":\"run\",\"schema\":99}\n").unwrap_err();
    /// assert!(error.to_string().starts_with("old.jsonl, line 1: the schema's version is 99"));
    /// ```
    pub fn read(name: &str, text: &str) -> Result<Self, ReadError> {
        let mut lines =
            text.split_inclusive('\n').enumerate().filter(|(_, line)| !line.trim().is_empty()).peekable();
        let (index, first) = lines.next().ok_or_else(|| ReadFault::Empty.of(name))?;
        let run = first_line(first).map_err(|fault| fault.at(name, index + 1))?;
        let mut seen = Seen::default();
        let mut file = Self {
            name: name.to_owned(),
            run,
            cells: Vec::new(),
            timelines: Vec::new(),
            end: None,
            last_line: index + 1,
        };
        while let Some((index, line)) = lines.next() {
            file.last_line = index + 1;
            match serde_json::from_str(line) {
                Ok(line) => file.take(line, &mut seen).map_err(|fault| fault.at(name, index + 1))?,
                // The run ended in the middle of writing it.
                Err(error) if error.is_eof() && !line.ends_with('\n') && lines.peek().is_none() => {}
                Err(error) if error.is_data() => return Err(ReadFault::Shape(error).at(name, index + 1)),
                Err(error) => return Err(ReadFault::Json(error).at(name, index + 1)),
            }
        }
        Ok(file)
    }

    fn take(&mut self, line: Line, seen: &mut Seen) -> Result<(), ReadFault> {
        if self.end.is_some() {
            return Err(ReadFault::AfterEnd);
        }
        limits::check(&line)?;
        match line {
            Line::Run(_) => return Err(ReadFault::SecondRun),
            Line::Cell(cell) => {
                seen.note(&cell)?;
                self.cells.push(cell);
                if self.cells.len() > limits::CELLS_MAX {
                    return Err(limits::too_many("cells", self.cells.len(), limits::CELLS_MAX));
                }
            }
            Line::Timeline(timeline) => {
                self.timelines.push(timeline);
                if self.timelines.len() > limits::TIMELINES_MAX {
                    return Err(limits::too_many("timelines", self.timelines.len(), limits::TIMELINES_MAX));
                }
            }
            Line::End(end) => {
                let counts = [
                    ("cell", end.cells, self.cells.len()),
                    ("timeline", end.timelines, self.timelines.len()),
                ];
                for (kind, counted, found) in counts {
                    if let Some(counted) = counted.filter(|counted| *counted != found) {
                        return Err(ReadFault::Counts { kind, counted, found });
                    }
                }
                self.end = Some(end);
            }
        }
        Ok(())
    }

    /// Whether its last line counts the others, so that none is missing; `None` where there is no last line. Programs before that did not count.
    pub fn is_counted(&self) -> Option<bool> {
        self.end.as_ref().map(|end| end.cells.is_some() && end.timelines.is_some())
    }

    /// The suites: as the run lists them, then those that only a cell names.
    pub fn suites(&self) -> Vec<&str> {
        let listed = self.run.suites.iter().map(String::as_str);
        distinct(listed.chain(self.cells.iter().map(|cell| cell.suite.as_str())))
    }

    /// The cells of `suite`, in the order of the file.
    pub fn cells_of<'a>(&'a self, suite: &'a str) -> impl Iterator<Item = &'a Cell> {
        self.cells.iter().filter(move |cell| cell.suite == suite)
    }

    /// The cases of `suite`, in the order of their first cells, with the cells of each.
    pub fn cases_of<'a>(&'a self, suite: &'a str) -> Vec<(&'a str, Vec<&'a Cell>)> {
        let cases = distinct(self.cells_of(suite).map(|cell| cell.case.as_str()));
        let of = |case| self.cells_of(suite).filter(|cell| cell.case == case).collect();
        cases.into_iter().map(|case| (case, of(case))).collect()
    }

    /// The cell of this arm in this case.
    pub fn cell(&self, suite: &str, case: &str, arm: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.suite == suite && cell.case == case && cell.arm == arm)
    }

    /// The arms, in the order of their first cells; those that only a timeline names come last.
    pub fn arms(&self) -> Vec<&str> {
        let of_cells = self.cells.iter().map(|cell| cell.arm.as_str());
        distinct(of_cells.chain(self.timelines.iter().map(|timeline| timeline.arm.as_str())))
    }
}

/// What the cells so far have.
#[derive(Default)]
struct Seen {
    places: HashSet<[String; 3]>,
    metrics: HashSet<String>,
}

impl Seen {
    fn note(&mut self, cell: &Cell) -> Result<(), ReadFault> {
        let place = [&cell.suite, &cell.case, &cell.arm].map(Clone::clone);
        if !self.places.insert(place) {
            let [suite, case, arm] = [&cell.suite, &cell.case, &cell.arm].map(Clone::clone);
            return Err(ReadFault::Twice { suite, case, arm });
        }
        self.metrics.extend(cell.metrics.keys().cloned());
        if self.metrics.len() > limits::METRICS_MAX {
            return Err(limits::too_many(
                "metrics of different names",
                self.metrics.len(),
                limits::METRICS_MAX,
            ));
        }
        Ok(())
    }
}

/// Each of these once, in their order.
pub(crate) fn distinct<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = HashSet::new();
    words.filter(|word| seen.insert(*word)).collect()
}

/// The version is looked at before the rest, which another version may have written in another way.
fn first_line(line: &str) -> Result<Run, ReadFault> {
    let value: Value = serde_json::from_str(line).map_err(ReadFault::Json)?;
    if value.get("kind").and_then(Value::as_str) != Some("run") {
        return Err(ReadFault::NoRun);
    }
    match value.get("schema").and_then(Value::as_u64) {
        Some(version) if KNOWN.iter().any(|known| u64::from(*known) == version) => {}
        Some(version) => return Err(ReadFault::Version { version }),
        None => return Err(ReadFault::NoVersion),
    }
    let line = serde_json::from_value(value).map_err(ReadFault::Shape)?;
    limits::check(&line)?;
    match line {
        Line::Run(run) => Ok(run),
        _ => Err(ReadFault::NoRun),
    }
}

/// Why a file cannot be shown.
#[derive(Debug, thiserror::Error)]
#[error("{file}{}: {fault}", At(*line))]
pub struct ReadError {
    /// The file, as given.
    pub file: String,
    /// The line, from 1; `None` where it is no line's fault.
    pub line: Option<usize>,
    /// What is wrong, and what would be right.
    pub fault: ReadFault,
}

struct At(Option<usize>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |line| write!(f, ", line {line}"))
    }
}

/// What is wrong with a file or a line of it.
#[derive(Debug, thiserror::Error)]
pub enum ReadFault {
    /// The system does not give it.
    #[error("it cannot be read: {0}")]
    Io(io::Error),
    /// It is larger than any run's.
    #[error("it has more than {} MiB; a run's file has some", limits::BYTES_MAX >> 20)]
    TooLarge,
    /// It is no text.
    #[error("it is no UTF-8 text; a run's file is JSON lines, one object each")]
    NoUtf8,
    /// There is nothing in it.
    #[error("it is empty; a run's file begins with an object of kind `run`")]
    Empty,
    /// The first line is something else.
    #[error(
        "it is no object of kind `run`; a run's file begins with one: is this the file of another program?"
    )]
    NoRun,
    /// The first line does not tell its version.
    #[error("the schema's version is missing; `schema` is a whole number, here {}", Known)]
    NoVersion,
    /// Written by another version of these programs.
    #[error("the schema's version is {version}; read here: {}: take the program that wrote the file", Known)]
    Version {
        /// What the file says.
        version: u64,
    },
    /// It is no JSON.
    #[error("it is no JSON ({0}); each line is one whole object")]
    Json(serde_json::Error),
    /// It is JSON that the schema does not have.
    #[error(
        "it is no line of a run ({0}); a line is an object of kind `run`, `cell`, `timeline` or `end` with all its fields"
    )]
    Shape(serde_json::Error),
    /// Two runs in one file.
    #[error("a second run begins here; keep each run in a file of its own and give both")]
    SecondRun,
    /// A cell that is there already.
    #[error(
        "`{suite}`, `{case}`, arm `{arm}` has a cell already; each has one: give different arms different names"
    )]
    Twice {
        /// Its suite.
        suite: String,
        /// Its case.
        case: String,
        /// Its arm.
        arm: String,
    },
    /// A number, a text or a list that no run has.
    #[error("`{field}`: {found}, where a run has {allowed}")]
    Limit {
        /// Where in the line.
        field: String,
        /// What is there.
        found: String,
        /// What may be there.
        allowed: String,
    },
    /// Lines are missing, or there are more than were written.
    #[error(
        "the run wrote {counted} line(s) of kind `{kind}`, and {found} stand above: the file was changed; take it as it was written"
    )]
    Counts {
        /// Of which kind.
        kind: &'static str,
        /// How many there were.
        counted: usize,
        /// How many are here.
        found: usize,
    },
    /// Something stands behind the last line.
    #[error(
        "something stands behind the line of kind `end`, which is the last of a run; keep each run in a file of its own"
    )]
    AfterEnd,
}

impl ReadFault {
    fn of(self, file: &str) -> ReadError {
        ReadError { file: file.to_owned(), line: None, fault: self }
    }

    fn at(self, file: &str, line: usize) -> ReadError {
        ReadError { file: file.to_owned(), line: Some(line), fault: self }
    }
}

/// [`KNOWN`] as a sentence has it.
struct Known;

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<String> = KNOWN.iter().map(u32::to_string).collect();
        f.write_str(&known.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = r#"{"kind":"run","schema":1,"command":[],"quick":true,"device":"sim","suites":["wake","burn"],"checks":[],"environment":{"cpu":"c","cpus":2,"os":"linux","kernel":"k","arch":"x86_64","release":true,"version":"0.1.0","timer_slack_ns":null,"seed":7,"began_unix_s":0}}"#;
    const END: &str = r#"{"kind":"end","took_s":1.5,"checks":[]}"#;

    fn cell(suite: &str, case: &str, arm: &str) -> String {
        format!(
            r#"{{"kind":"cell","suite":"{suite}","case":"{case}","arm":"{arm}","family":"raw","base":"spin","rounds":0,"metrics":{{}}}}"#
        )
    }

    fn read(lines: &[&str]) -> Result<RunFile, ReadError> {
        let text = lines.join("\n") + "\n";
        RunFile::read("a.jsonl", &text)
    }

    #[test]
    fn a_file_is_read_in_its_order() {
        let cells = [cell("burn", "1 ms", "spin"), cell("ops", "1", "flag"), cell("burn", "2 ms", "block")];
        let file = read(&[RUN, "", &cells[0], &cells[1], &cells[2], END]).unwrap();
        assert_eq!(file.suites(), ["wake", "burn", "ops"]);
        assert_eq!(file.arms(), ["spin", "flag", "block"]);
        let cases: Vec<&str> = file.cases_of("burn").into_iter().map(|(case, _)| case).collect();
        assert_eq!(cases, ["1 ms", "2 ms"]);
        assert!(file.cases_of("wake").is_empty());
        assert!(file.end.is_some() && file.cell("ops", "1", "flag").is_some());
    }

    #[test]
    fn a_file_that_was_cut_off_is_read_as_far_as_it_goes() {
        let whole = cell("wake", "1 ms", "spin");
        let behind = read(&[RUN, &whole]).unwrap();
        assert_eq!((behind.end, behind.last_line), (None, 2));
        for cut in 1..whole.len() {
            let file = RunFile::read("a", &format!("{RUN}\n{whole}\n{}", &whole[..cut])).unwrap();
            assert_eq!((file.cells.len(), file.end, file.last_line), (1, None, 3), "cut after {cut} bytes");
        }
        // Cut in the middle of the file, it is not cut off but damaged.
        let error = RunFile::read("a", &format!("{RUN}\n{}\n{whole}\n", &whole[..9])).unwrap_err();
        assert_eq!(error.line, Some(2));
    }

    /// A run's file, cut after any number of its bytes, is shown as cut off or not at all; only all of it is whole.
    #[test]
    fn no_part_of_a_file_is_taken_for_the_whole() {
        let mut cell: Cell = serde_json::from_str(&cell("wake", "1 ms", "\u{e4}\u{1f600}")).unwrap();
        cell.cdf = vec![(3, 0.5), (1_000, 1.0)];
        cell.notes = vec!["a \"note\" \\ \u{7}".to_owned()];
        let cell = serde_json::to_string(&Line::Cell(cell)).unwrap();
        let end = END.replace("1.5", "1.5e-7");
        let text = format!("{RUN}\n{cell}\n{end}\n");
        let path = std::env::temp_dir().join(format!("bench-cut-{}.jsonl", std::process::id()));
        for cut in 0..text.len() {
            std::fs::write(&path, &text.as_bytes()[..cut]).unwrap();
            match RunFile::load(&path) {
                // The last byte is the end of the last line.
                Ok(file) => assert_eq!(file.end.is_some(), cut + 1 == text.len(), "cut after {cut} bytes"),
                Err(error) => assert!(cut < RUN.len(), "cut after {cut} bytes: {error}"),
            }
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn lines_that_are_missing_or_too_many_are_an_error() {
        let cells = [cell("wake", "1 ms", "spin"), cell("wake", "1 ms", "flag")];
        let end = |cells: usize, timelines: usize| {
            END.replace("\"checks\"", &format!("\"cells\":{cells},\"timelines\":{timelines},\"checks\""))
        };
        let whole = read(&[RUN, &cells[0], &cells[1], &end(2, 0)]).unwrap();
        assert_eq!(whole.is_counted(), Some(true));
        assert_eq!(read(&[RUN, &cells[0], END]).unwrap().is_counted(), Some(false));
        assert_eq!(read(&[RUN, &cells[0]]).unwrap().is_counted(), None);
        for (lines, says) in [
            (
                [RUN, &cells[0], &end(2, 0)],
                "a.jsonl, line 3: the run wrote 2 line(s) of kind `cell`, and 1 stand",
            ),
            (
                [RUN, &cells[0], &end(0, 0)],
                "a.jsonl, line 3: the run wrote 0 line(s) of kind `cell`, and 1 stand",
            ),
            (
                [RUN, &cells[0], &end(1, 3)],
                "a.jsonl, line 3: the run wrote 3 line(s) of kind `timeline`, and 0",
            ),
        ] {
            let message = read(&lines).unwrap_err().to_string();
            assert!(message.starts_with(says), "{message}");
        }
    }

    #[test]
    fn a_file_without_an_end_is_not_read_for_ever() {
        if cfg!(target_os = "linux") {
            let message = RunFile::load(Path::new("/dev/zero")).unwrap_err().to_string();
            assert!(message.starts_with("/dev/zero: it has more than 64 MiB"), "{message}");
        }
    }

    #[test]
    fn each_fault_names_its_line_and_what_would_be_right() {
        let cell = cell("wake", "1 ms", "spin");
        let other = RUN.replace("\"schema\":1", "\"schema\":2");
        let none = RUN.replace("\"schema\":1,", "");
        for (lines, says) in [
            (&[][..], "a.jsonl: it is empty; a run's file begins with"),
            (&["", &cell], "a.jsonl, line 2: it is no object of kind `run`"),
            (&["{"], "a.jsonl, line 1: it is no JSON (EOF"),
            (&[&other], "a.jsonl, line 1: the schema's version is 2; read here: 1: take"),
            (
                &[&none],
                "a.jsonl, line 1: the schema's version is missing; `schema` is a whole number, here 1",
            ),
            (&[RUN, RUN], "a.jsonl, line 2: a second run begins here; keep"),
            (&[RUN, "{]"], "a.jsonl, line 2: it is no JSON (key must be a string"),
            (
                &[RUN, "{\"kind\":\"sell\"}"],
                "a.jsonl, line 2: it is no line of a run (unknown variant `sell`",
            ),
            (&[RUN, "{\"kind\":\"cell\"}"], "a.jsonl, line 2: it is no line of a run (missing field `suite`"),
            (&[RUN, &cell, &cell], "a.jsonl, line 3: `wake`, `1 ms`, arm `spin` has a cell already"),
            (&[RUN, END, &cell], "a.jsonl, line 3: something stands behind the line of kind `end`"),
        ] {
            let message = read(lines).unwrap_err().to_string();
            assert!(message.starts_with(says) && !message.contains('\n'), "{message}, not {says}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let message = RunFile::load(Path::new("no/such.jsonl")).unwrap_err().to_string();
        assert!(message.starts_with("no/such.jsonl: it cannot be read: "), "{message}");
    }
}
