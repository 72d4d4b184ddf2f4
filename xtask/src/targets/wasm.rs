//! WebAssembly: the core is built, and waits over a scripted port run in node.

use anyhow::Result;

use super::{Builder, CORE};
use crate::cmd::Cmd;
use crate::missing::Missing;

/// The package whose waits are run.
const PACKAGE: &str = "wakeline-wasm";

/// Builds the module and has node run it.
pub(super) fn run(builder: &Builder, triple: &'static str) -> Result<()> {
    builder.cargo("build", triple, CORE)?.words("-p wakeline-core -p").arg(PACKAGE).run()?;
    let node = ["node", "nodejs"].into_iter().find(|name| Cmd::new(name).arg("--version").works());
    let node = node.ok_or_else(|| Missing {
        what: "no WebAssembly is run: node is not here".to_owned(),
        install: "apt-get install nodejs".to_owned(),
    })?;
    let module = builder.folder(triple).join("debug/wakeline_wasm.wasm");
    Cmd::new(node).arg("tests/wasm/run.mjs").arg(module).run()
}
