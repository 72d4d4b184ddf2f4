//! Energy, where the machine tells: of the GPU by NVIDIA's management library, of the processors by RAPL.

use std::fs;
use std::path::{Path, PathBuf};

use wakeline_nvml::{Absent, EnergyCounter, Gpu};

/// Where Linux shows the processors' counters.
const POWERCAP: &str = "/sys/class/powercap";

/// The counters that this machine has.
#[derive(Debug, Default)]
pub struct Energy {
    gpu: Option<EnergyCounter>,
    packages: Vec<Package>,
    why_not: Vec<String>,
}

/// What the counters read, in joules; `None` where there is none.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Joules {
    gpu: Option<f64>,
    /// Each package's, in microjoules.
    packages: Vec<Option<u64>>,
}

/// What was used between two readings, in joules.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Used {
    /// By the GPU.
    pub gpu: Option<f64>,
    /// By the processors.
    pub cpu: Option<f64>,
}

impl Used {
    /// All that is known; `None` where nothing is.
    pub fn total(self) -> Option<f64> {
        match (self.gpu, self.cpu) {
            (Some(gpu), Some(cpu)) => Some(gpu + cpu),
            (one, other) => one.or(other),
        }
    }
}

impl Energy {
    /// No counters.
    pub fn none() -> Self {
        Self::default()
    }

    /// Those of the processors, and of a GPU by the first of its names that the management library knows: the one at `library`, or else the
    /// system's.
    ///
    /// # Errors
    ///
    /// The library at `library`, which was asked for, cannot be loaded: which and why. The system's may be absent.
    pub fn find(gpu: &[Gpu], library: Option<&Path>) -> Result<Self, String> {
        let mut energy = Self::in_folder(Path::new(POWERCAP));
        let mut why_not = None;
        for name in gpu {
            match (EnergyCounter::open(library, name), library) {
                (Ok(counter), _) => {
                    energy.gpu = Some(counter);
                    return Ok(energy);
                }
                (Err(absent @ Absent::Library(_)), Some(path)) => {
                    return Err(format!("`--nvml {}` cannot be used: {absent}", path.display()));
                }
                (Err(absent), _) => why_not = Some(format!("GPU: {absent}")),
            }
        }
        energy.why_not.extend(why_not);
        Ok(energy)
    }

    fn in_folder(folder: &Path) -> Self {
        let mut packages = Vec::new();
        let mut why_not = Vec::new();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // `intel-rapl:0` is a package, `intel-rapl:0:0` a part of it. AMD's are called so too.
            if !name.starts_with("intel-rapl:") || name.matches(':').count() != 1 {
                continue;
            }
            let package = Package { folder: entry.path() };
            match package.microjoules() {
                Ok(_) => packages.push(package),
                Err(error) => why_not.push(format!("{name}: {error}")),
            }
        }
        if packages.is_empty() && why_not.is_empty() {
            why_not.push("processors: RAPL is not shown".to_owned());
        }
        packages.sort_by(|one, other| one.folder.cmp(&other.folder));
        Self { gpu: None, packages, why_not }
    }

    /// What can be read, and why the rest cannot, for people.
    pub fn told(&self) -> String {
        let mut told = Vec::new();
        if self.gpu.is_some() {
            told.push("GPU by NVML".to_owned());
        }
        if !self.packages.is_empty() {
            told.push(format!("{} processor package(s) by RAPL", self.packages.len()));
        }
        told.extend(self.why_not.iter().map(|why| format!("absent: {why}")));
        told.join("; ")
    }

    /// Whether there is any counter.
    pub fn is_known(&self) -> bool {
        self.gpu.is_some() || !self.packages.is_empty()
    }

    /// Reads all of them.
    pub fn now(&self) -> Joules {
        Joules {
            gpu: self.gpu.as_ref().and_then(EnergyCounter::millijoules).map(|mj| real(mj) / 1e3),
            packages: self.packages.iter().map(|package| package.microjoules().ok()).collect(),
        }
    }

    /// What was used between two readings.
    pub fn used(&self, before: &Joules, after: &Joules) -> Used {
        let pairs = before.packages.iter().zip(&after.packages).zip(&self.packages);
        let used = pairs.map(|((before, after), package)| {
            Some(package.between((*before)?, (*after)?)?).map(|microjoules| real(microjoules) / 1e6)
        });
        let cpu = used.collect::<Option<Vec<f64>>>().filter(|packages| !packages.is_empty());
        Used {
            gpu: after.gpu.zip(before.gpu).map(|(after, before)| after - before).filter(|used| *used >= 0.0),
            cpu: cpu.map(|packages| packages.iter().sum()),
        }
    }
}

/// The counter of a package of processors.
#[derive(Debug)]
struct Package {
    folder: PathBuf,
}

impl Package {
    fn number(&self, file: &str) -> std::io::Result<u64> {
        let text = fs::read_to_string(self.folder.join(file))?;
        text.trim().parse().map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))
    }

    fn microjoules(&self) -> std::io::Result<u64> {
        self.number("energy_uj")
    }

    /// From one reading to a later one. The counter begins again at 0 behind its highest value, every some minutes under load.
    fn between(&self, before: u64, after: u64) -> Option<u64> {
        if after >= before {
            return Some(after - before);
        }
        let range = self.number("max_energy_range_uj").ok()?;
        range.checked_sub(before)?.checked_add(after)
    }
}

#[expect(clippy::cast_precision_loss, reason = "an f64 is exact to 2^53 microjoules, 285 years of a watt")]
fn real(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder as Linux shows it, removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("wakeline-rapl-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn package(&self, name: &str, energy: &str) {
            let folder = self.0.join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("energy_uj"), energy).unwrap();
            fs::write(folder.join("max_energy_range_uj"), "1000000000\n").unwrap();
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn packages_are_summed_and_their_parts_left_out() {
        let folder = Folder::new("sum");
        folder.package("intel-rapl:0", "1000000\n");
        folder.package("intel-rapl:0:0", "7\n");
        folder.package("intel-rapl:1", "5000000\n");
        let energy = Energy::in_folder(&folder.0);
        let before = energy.now();
        folder.package("intel-rapl:0", "3000000\n");
        folder.package("intel-rapl:1", "5500000\n");
        let used = energy.used(&before, &energy.now());
        assert_eq!((used.gpu, used.cpu, used.total()), (None, Some(2.5), Some(2.5)));
        assert!(energy.told().contains("2 processor package(s)"), "{}", energy.told());
    }

    #[test]
    fn a_counter_that_began_again_is_seen_to_have_done_so() {
        let folder = Folder::new("wrap");
        folder.package("intel-rapl:0", "999000000");
        let energy = Energy::in_folder(&folder.0);
        let before = energy.now();
        folder.package("intel-rapl:0", "1000000");
        assert_eq!(energy.used(&before, &energy.now()).cpu, Some(2.0));
    }

    #[test]
    fn what_cannot_be_read_is_absent_and_never_zero() {
        let folder = Folder::new("absent");
        let energy = Energy::in_folder(&folder.0);
        let reading = energy.now();
        assert_eq!(energy.used(&reading, &reading), Used::default());
        assert!(!energy.is_known() && energy.told().starts_with("absent: "), "{}", energy.told());
        folder.package("intel-rapl:0", "not a number");
        let energy = Energy::in_folder(&folder.0);
        assert!(!energy.is_known() && energy.told().contains("intel-rapl:0: "), "{}", energy.told());
        // One that fails between two readings.
        folder.package("intel-rapl:0", "5");
        let energy = Energy::in_folder(&folder.0);
        let before = energy.now();
        folder.package("intel-rapl:0", "?");
        assert_eq!(energy.used(&before, &energy.now()).total(), None);
    }
}
