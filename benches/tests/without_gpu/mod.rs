//! A machine without a GPU, on any machine.

use std::path::Path;
use std::process::Command;

/// Has `command` find no driver, whether or not there is one: in the place where it is looked for first there is a file of its name that is no library.
pub(crate) fn hide_driver(command: &mut Command) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("without-gpu");
    std::fs::create_dir_all(&folder).unwrap();
    // Written once as a whole: tests run beside each other.
    let (file, own) = (folder.join("libcuda.so.1"), folder.join(format!("{}", std::process::id())));
    std::fs::write(&own, "this is no library\n").unwrap();
    std::fs::rename(&own, &file).unwrap();
    command.env("LD_LIBRARY_PATH", &folder);
}
