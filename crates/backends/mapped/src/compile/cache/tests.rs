//! The cache by itself, with entries that were never compiled.

use std::fs;
use std::time::{Duration, SystemTime};

use super::*;
use crate::compile::library::CompilerVersion;
use crate::compile::made::{Code, Made};
use crate::compile::tests::folder;

fn key(number: u8) -> Key {
    Key([number; 32])
}

fn compiled(bytes: usize) -> Arc<Made> {
    let names = vec![("f<int>".to_owned(), "_Z1fIiEvv".to_owned())];
    Arc::new(Made { code: Code::Machine(vec![7; bytes]), names, log: "a warning".to_owned() })
}

fn at(folder: &Path) -> KernelCache {
    KernelCache::at(folder).unwrap()
}

#[test]
fn what_one_cache_keeps_another_finds() {
    let folder = folder("finds");
    let (first, entry) = (at(&folder), compiled(1_000));
    assert_eq!(first.get(&key(1)), None);
    first.put(&key(1), &entry);
    assert_eq!(first.get(&key(1)).as_ref(), Some(&entry));
    let second = at(&folder);
    for _ in 0..2 {
        assert_eq!(second.get(&key(1)).as_ref(), Some(&entry));
    }
    let text =
        Arc::new(Made { code: Code::text(b"ptx\0".to_vec()).unwrap(), names: vec![], log: String::new() });
    second.put(&key(2), &text);
    assert_eq!(at(&folder).get(&key(2)), Some(text));
    assert_eq!(first.stats(), CacheStats { memory_hits: 1, misses: 1, ..CacheStats::default() });
    assert_eq!(second.stats(), CacheStats { memory_hits: 1, disk_hits: 1, ..CacheStats::default() });
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_was_cut_or_changed_is_deleted_and_counted() {
    let folder = folder("corrupt");
    let path = folder.join(key(1).file());
    at(&folder).put(&key(1), &compiled(100));
    let whole = fs::read(&path).unwrap();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let damaged: Vec<Vec<u8>> =
        (0..whole.len()).map(|len| whole[..len].to_vec()).chain((0..whole.len()).map(flipped)).collect();
    for bytes in damaged {
        fs::write(&path, bytes).unwrap();
        let cache = at(&folder);
        assert_eq!(cache.get(&key(1)), None);
        assert_eq!(cache.stats(), CacheStats { misses: 1, corrupt: 1, ..CacheStats::default() });
        assert!(!path.exists());
    }
    // One that is whole, under another's name.
    fs::write(folder.join(key(2).file()), &whole).unwrap();
    let cache = at(&folder);
    assert_eq!((cache.get(&key(2)), cache.stats().corrupt), (None, 1));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_files_that_were_not_used_for_the_longest_go_first() {
    let folder = folder("evicts");
    let config = CacheConfig { folder: Some(folder.clone()), disk_bytes_max: 4_000, memory_bytes_max: 0 };
    let cache = KernelCache::with(config).unwrap();
    let used = |number: u8, ago_s: u64| {
        let file = fs::File::options().write(true).open(folder.join(key(number).file())).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(ago_s)).unwrap();
    };
    for number in 1..=3 {
        cache.put(&key(number), &compiled(1_000));
        used(number, 100 * u64::from(number));
    }
    // Used by now: the one that was not for the longest is another.
    assert!(cache.get(&key(3)).is_some());
    cache.put(&key(4), &compiled(1_000));
    let there = |number: u8| folder.join(key(number).file()).exists();
    assert_eq!([1, 2, 3, 4].map(there), [true, false, true, true]);
    assert_eq!(cache.stats().evicted, 1);
    // One that has no room at all is not kept, and nothing goes for it.
    cache.put(&key(5), &compiled(5_000));
    assert_eq!([1, 3, 4, 5].map(there), [true, true, true, false]);
    // One that is as large as all makes all others go.
    cache.put(&key(6), &compiled(3_800));
    assert_eq!([1, 3, 4, 6].map(there), [false, false, false, true]);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_a_process_left_half_written_goes_when_it_is_old() {
    let folder = folder("left");
    let cache = at(&folder);
    let (old, new) = (folder.join(".1-0.tmp"), folder.join(".1-1.tmp"));
    for path in [&old, &new] {
        fs::write(path, "half").unwrap();
    }
    let file = fs::File::options().write(true).open(&old).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(4_000)).unwrap();
    cache.put(&key(1), &compiled(10));
    assert_eq!((old.exists(), new.exists()), (false, true));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn files_of_other_names_are_left_alone() {
    let folder = folder("others");
    let (name, half) = (key(9).file(), &key(9).file()[..32]);
    let others = [
        "thesis.tmp".to_owned(),
        ".thesis-1.tmp".to_owned(),
        ".1-.tmp".to_owned(),
        "1-1.tmp".to_owned(),
        ".1-1-1.tmp".to_owned(),
        "results.kernel".to_owned(),
        "nvcc.compiler".to_owned(),
        format!("{half}.kernel"),
        format!("0{name}"),
        name.to_uppercase().replace("KERNEL", "kernel").replacen('0', "F", 1),
        name.replacen('0', "g", 1),
        format!("{name}.bak"),
    ];
    let old = SystemTime::now() - Duration::from_secs(7_200);
    for other in &others {
        fs::write(folder.join(other), vec![1; 4_096]).unwrap();
        fs::File::options().write(true).open(folder.join(other)).unwrap().set_modified(old).unwrap();
    }
    let config =
        CacheConfig { folder: Some(folder.clone()), disk_bytes_max: 4_000, ..CacheConfig::default() };
    let cache = KernelCache::with(config).unwrap();
    // They take no room, so that one entry is deleted for another and they are not.
    for (number, evicted) in [(1, 0), (2, 0), (3, 1)] {
        cache.put(&key(number), &compiled(1_500));
        assert_eq!((cache.stats().evicted, cache.stats().failed), (evicted, 0), "{number}");
    }
    for other in &others {
        assert!(folder.join(other).exists(), "{other}");
    }
    fs::remove_dir_all(folder).unwrap();
}

/// To open or to read some of them might never end, so a thread does it that the test need not wait for.
#[test]
#[cfg(target_os = "linux")]
fn an_entry_that_is_no_file_is_none_and_is_written_anew() {
    use std::os::unix::fs::symlink;
    type Make = fn(&Path);
    let pipe: Make =
        |path| assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    // What it is, how it is made, how often it is counted as corrupt, and how many calls about it fail.
    let kinds: [(&str, Make, u64, u64); 6] = [
        ("pipe", pipe, 1, 0),
        ("endless", |path| symlink("/dev/zero", path).unwrap(), 1, 0),
        ("empty", |path| symlink("/dev/null", path).unwrap(), 1, 0),
        ("nowhere", |path| symlink("/no/where", path).unwrap(), 0, 0),
        ("circle", |path| symlink(path, path).unwrap(), 0, 1),
        ("folder", |path| fs::create_dir(path).unwrap(), 1, 2),
    ];
    for (kind, make, corrupt, failed) in kinds {
        let folder = folder(kind);
        let path = folder.join(key(1).file());
        make(&path);
        let (send, receive) = std::sync::mpsc::channel();
        let cache = at(&folder);
        let looking = cache.clone();
        std::thread::spawn(move || {
            let found = looking.get(&key(1));
            looking.put(&key(1), &compiled(100));
            send.send(found)
        });
        let found = receive.recv_timeout(Duration::from_secs(20));
        assert_eq!(found, Ok(None), "{kind}");
        assert_eq!((cache.stats().corrupt, cache.stats().failed), (corrupt, failed), "{kind}");
        let another = at(&folder).get(&key(1));
        assert_eq!(another, (kind != "folder").then(|| compiled(100)), "{kind}");
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn memory_keeps_what_was_used_last() {
    let mut memory = Memory::new(2_500);
    for number in 1..=2 {
        memory.put(key(number), &compiled(1_000));
    }
    assert!(memory.get(&key(1)).is_some());
    memory.put(key(3), &compiled(1_000));
    assert_eq!([1, 2, 3].map(|number| memory.get(&key(number)).is_some()), [true, false, true]);
    memory.put(key(4), &compiled(2_600));
    assert!(memory.get(&key(4)).is_none() && memory.get(&key(3)).is_some());
}

#[test]
fn many_threads_with_caches_of_their_own_share_a_folder() {
    let folder = folder("shared");
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let folder = &folder;
            scope.spawn(move || {
                let config =
                    CacheConfig { folder: Some(folder.clone()), disk_bytes_max: 20_000, memory_bytes_max: 0 };
                let cache = KernelCache::with(config).unwrap();
                for round in 0..60_u8 {
                    let number = (thread + round) % 8;
                    let wanted = compiled(1_000 + 500 * usize::from(number));
                    match cache.get(&key(number)) {
                        Some(found) => assert_eq!(found, wanted),
                        None => cache.put(&key(number), &wanted),
                    }
                }
                let stats = cache.stats();
                assert_eq!((stats.corrupt, stats.failed), (0, 0), "{stats:?}");
            });
        }
    });
    let left = fs::read_dir(&folder)
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|e| e == "tmp"));
    assert_eq!(left.count(), 0);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_is_known_of_a_compiler_goes_with_its_file() {
    let folder = folder("facts");
    let library = folder.join("libnvrtc.so");
    fs::write(&library, "a library").unwrap();
    let version = CompilerVersion { major: 12, minor: 8 };
    let facts = Facts { version, archs: vec![80, 120], path: library.clone() };
    let (cache, asked) = (at(&folder.join("cache")), Key::asked(["libnvrtc.so"].into_iter()));
    assert_eq!(cache.facts(&asked), None);
    cache.put_facts(&asked, &facts);
    assert_eq!(cache.facts(&asked), Some(facts.clone()));
    assert_eq!(cache.facts(&Key::asked(["another"].into_iter())), None);
    fs::write(&library, "another library").unwrap();
    assert_eq!(cache.facts(&asked), None);
    fs::remove_dir_all(folder).unwrap();
}
