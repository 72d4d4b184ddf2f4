//! `bench report`: shows earlier runs, compares them, and guards them in CI.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::compare::Comparison;
use super::condition::{Condition, Outcome, ParseError, Quantity, Unjudged};
use super::read::{ReadError, RunFile};
use super::{page, table};
use crate::gpu::texts;
use crate::plain;

/// What `--help` shows.
pub const USAGE: &str = "usage: bench report FILE.. [--out PAGE] [--compare] [--fail-if CONDITION]..
  FILE                 a run's file, JSON lines as `bench` writes them
  --out PAGE           write one self-contained HTML page of all of them
  --compare            hold each file against the first: ratios to the base, by Welch's interval
  --fail-if CONDITION  exit with 3 where it holds; may be given several times
conditions:
  ratio(SUITE/CASE/ARM).METRIC > 1.05   by the base arm, paired by round
  change(SUITE/CASE/ARM).METRIC > 0.05  the ratio less that of the first file; with --compare
  count(SUITE/CASE/ARM).instructions > 500
  `*` stands for anything; > >= < <=; a name with `/`, `(`, `)` or `*` in it stands in quotes.
  A condition holds where all of the 99 % interval fulfils it. With --compare the first file is not judged.
  A run that was cut off cannot be judged; one whose last line does not count the others, of an older program, is, with a note.
exit codes: 0 well, 1 a file cannot be read or written or a condition not judged, 2 wrong arguments, 3 a condition holds";

/// A condition holds.
const CODE_HOLDS: u8 = 3;

/// Does what these words ask for; the name of the program is not among them. Shows the runs on standard output.
pub fn main_report(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words = texts(words.into_iter()).map_err(Failure::Usage);
    // A guard judges to the end, whoever reads of it.
    let mut output = Unheard::new(io::stdout().lock());
    let args = words.and_then(|words| Args::parse(words.into_iter()));
    match args.and_then(|args| run(&args, &mut output)) {
        Ok(false) => ExitCode::SUCCESS,
        Ok(true) => ExitCode::from(CODE_HOLDS),
        Err(failure) => {
            let told = match &failure {
                // Its three lines are its own, and what it shows of the condition is plain in them.
                Failure::Condition(error) => error.to_string(),
                other => plain(&other.to_string()),
            };
            // Where even that cannot be written, the exit code tells.
            let _ = writeln!(io::stderr(), "bench report: {told}");
            ExitCode::from(failure.code())
        }
    }
}

/// Goes on where nobody reads any more: what is written then is lost, and that is no failure.
#[derive(Debug)]
struct Unheard<W> {
    inner: W,
    gone: bool,
}

impl<W> Unheard<W> {
    const fn new(inner: W) -> Self {
        Self { inner, gone: false }
    }

    /// What came of `result`, but that nobody reads.
    fn hear<T>(&mut self, result: io::Result<T>, lost: T) -> io::Result<T> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.gone = true;
                Ok(lost)
            }
            result => result,
        }
    }
}

impl<W: Write> Write for Unheard<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.gone {
            return Ok(bytes.len());
        }
        let result = self.inner.write(bytes);
        self.hear(result, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.gone {
            return Ok(());
        }
        let result = self.inner.flush();
        self.hear(result, ())
    }
}

/// Why nothing, or not all, could be done.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}; see --help")]
    Usage(String),
    #[error("{0}")]
    Condition(#[from] ParseError),
    #[error("{0}")]
    Read(#[from] ReadError),
    #[error("`{condition}` cannot be judged: {why}")]
    Unjudged { condition: String, why: Unjudged },
    #[error("{} cannot be written: {error}", page.display())]
    Page { page: PathBuf, error: io::Error },
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
}

impl Failure {
    const fn code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Condition(_) => 2,
            Self::Read(_) | Self::Unjudged { .. } | Self::Page { .. } | Self::Output(_) => 1,
        }
    }
}

/// The command line.
#[derive(Debug, Default, PartialEq)]
struct Args {
    files: Vec<PathBuf>,
    out: Option<PathBuf>,
    compare: bool,
    conditions: Vec<Condition>,
    help: bool,
}

impl Args {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut args = Self::default();
        while let Some(word) = words.next() {
            let wants = || Failure::Usage(format!("`{word}` wants a value"));
            match word.as_str() {
                "--out" if args.out.is_some() => {
                    return Err(Failure::Usage("`--out` is there twice: give it once".to_owned()));
                }
                "--out" => args.out = Some(words.next().ok_or_else(wants)?.into()),
                "--fail-if" => args.conditions.push(words.next().ok_or_else(wants)?.parse()?),
                "--compare" => args.compare = true,
                "--help" | "-h" => args.help = true,
                option if option.starts_with('-') => {
                    return Err(Failure::Usage(format!("unknown argument `{option}`")));
                }
                file => args.files.push(file.into()),
            }
        }
        let changes = args.conditions.iter().any(|condition| condition.quantity() == Quantity::Change);
        let wrong = match args.files.len() {
            _ if args.help => return Ok(args),
            0 => "give a run's file at least".to_owned(),
            1 if args.compare => "`--compare` wants two files at least".to_owned(),
            _ if changes && !args.compare => "`change(..)` wants `--compare`".to_owned(),
            _ => return Ok(args),
        };
        Err(Failure::Usage(wrong))
    }
}

/// Whether both paths are of one file that is there.
pub(in crate::ab) fn is_same(one: &Path, other: &Path) -> bool {
    let [one, other] = [one, other].map(std::fs::canonicalize);
    matches!((one, other), (Ok(one), Ok(other)) if one == other)
}

/// Whether a condition holds.
fn run(args: &Args, output: &mut impl Write) -> Result<bool, Failure> {
    if args.help {
        writeln!(output, "{USAGE}")?;
        return Ok(false);
    }
    if let Some(out) = &args.out
        && args.files.iter().any(|file| is_same(file, out))
    {
        let path = out.display();
        return Err(Failure::Usage(format!(
            "`--out {path}` is one of the runs to show: give the page another name"
        )));
    }
    let loaded: Result<Vec<RunFile>, ReadError> = args.files.iter().map(|path| RunFile::load(path)).collect();
    let files = loaded?;
    let comparisons: Vec<Comparison> = match files.split_first() {
        Some((first, others)) if args.compare => {
            others.iter().map(|other| Comparison::of(first, other)).collect()
        }
        _ => Vec::new(),
    };
    for file in &files {
        writeln!(output, "{}", table(file))?;
    }
    for comparison in &comparisons {
        writeln!(output, "{}", comparison.table())?;
    }
    if let Some(path) = &args.out {
        let write = std::fs::write(path, page(&files, &comparisons));
        write.map_err(|error| Failure::Page { page: path.clone(), error })?;
        writeln!(output, "wrote {}", plain(&path.display().to_string()))?;
    }
    judge(args, &files, &comparisons, output)
}

/// Holds every condition against every run; against the first of a comparison none, which is what the others are
/// compared to.
fn judge(
    args: &Args,
    files: &[RunFile],
    comparisons: &[Comparison],
    output: &mut impl Write,
) -> Result<bool, Failure> {
    let mut holds = false;
    let mut first_unjudged = None;
    for file in files.iter().filter(|file| !args.conditions.is_empty() && file.is_counted() == Some(false)) {
        // Nothing can have been cut off: its last line is there. Whoever takes lines out of the middle of a file may as well change them.
        let note = "an older program wrote it, and did not count its lines: whether some were taken out is not known";
        writeln!(output, "NOTE  {}, line {}: {note}", plain(&file.name), file.last_line)?;
    }
    for condition in &args.conditions {
        writeln!(output, "fail if {}", plain(&condition.to_string()))?;
        for (index, file) in files.iter().enumerate().skip(usize::from(args.compare)) {
            let comparison = index.checked_sub(1).and_then(|index| comparisons.get(index));
            match condition.judge(file, comparison) {
                Ok((judged, left)) => {
                    for why in &left {
                        writeln!(output, "  ERROR   {}: {}", plain(&file.name), plain(why))?;
                    }
                    if !left.is_empty() {
                        let why = Unjudged::Partly { file: file.name.clone(), why: left };
                        first_unjudged.get_or_insert((condition.to_string(), why));
                    }
                    for judged in judged {
                        holds |= judged.outcome == Outcome::Holds;
                        let word = if judged.outcome == Outcome::Holds { "FAILED" } else { "passed" };
                        writeln!(output, "  {word}  {}: {}", plain(&file.name), plain(&judged.to_string()))?;
                    }
                }
                Err(why) => {
                    writeln!(output, "  ERROR   {}", plain(&why.to_string()))?;
                    first_unjudged.get_or_insert((condition.to_string(), why));
                }
            }
        }
    }
    match first_unjudged {
        // That one holds is told first: the other may be for that very reason.
        Some((condition, why)) if !holds => Err(Failure::Unjudged { condition, why }),
        _ => Ok(holds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Args, String> {
        Args::parse(words.iter().map(|word| (*word).to_owned())).map_err(|failure| failure.to_string())
    }

    #[test]
    fn arguments_are_read_and_others_are_refused() {
        let args =
            parse(&["a", "--out", "p.html", "b", "--compare", "--fail-if", "ratio(a/b/c).cpu > 1"]).unwrap();
        assert_eq!((args.files.len(), args.compare, args.conditions.len()), (2, true, 1));
        assert_eq!(args.out, Some("p.html".into()));
        assert!(parse(&["-h"]).unwrap().help);
        for (words, says) in [
            (&[][..], "give a run's file at least; see --help"),
            (&["--out"], "`--out` wants a value"),
            (&["a", "--out", "b", "--out", "c"], "`--out` is there twice"),
            (&["--outt", "x"], "unknown argument `--outt`"),
            (&["a", "--compare"], "`--compare` wants two files"),
            (&["a", "b", "--fail-if", "change(a/b/c).cpu > 1"], "`change(..)` wants `--compare`"),
            (&["a", "--fail-if", "p99(a/b/c) > 1"], "invalid condition, column 1: `p99` is refused"),
        ] {
            let message = parse(words).unwrap_err();
            assert!(message.starts_with(says), "{words:?}: {message}");
        }
    }

    /// A pipe that is closed after so many bytes.
    struct Closed(usize);

    impl Write for Closed {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let some = bytes.len().min(self.0);
            self.0 -= some;
            if some == 0 { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(some) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn nobody_reading_is_no_failure_and_any_other_is() {
        let mut output = Unheard::new(Closed(10));
        output.write_all(b"more than ten bytes").unwrap();
        output.write_all(b"and more").unwrap();
        output.flush().unwrap();
        let mut full = Unheard::new(&mut [][..]);
        assert_eq!(full.write_all(b"x").unwrap_err().kind(), io::ErrorKind::WriteZero);
    }

    #[test]
    fn a_page_does_not_take_the_place_of_its_run() {
        let file = std::env::temp_dir().join(format!("run-{}.jsonl", std::process::id()));
        std::fs::write(&file, "a run").unwrap();
        let name = file.to_str().unwrap();
        let args = Args::parse([name, "--out", name].map(str::to_owned).into_iter()).unwrap();
        let failure = run(&args, &mut Vec::new()).unwrap_err();
        assert!(failure.code() == 2 && failure.to_string().contains("one of the runs"), "{failure}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "a run");
        std::fs::remove_file(&file).unwrap();
    }
}
