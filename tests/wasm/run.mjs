// Runs the module's waits: `node run.mjs MODULE`. It imports nothing, and traps where a wait does not end as it should.
import { readFileSync } from "node:fs";

const module = await WebAssembly.compile(readFileSync(process.argv[2]));
const imports = WebAssembly.Module.imports(module);
if (imports.length !== 0) {
  throw new Error(`it imports ${JSON.stringify(imports)}: the core asks for nothing`);
}
const { exports } = await WebAssembly.instantiate(module);
const waits = exports.waits();
// A trap in its turn: that a failure would be seen.
let trapped = false;
try {
  exports.fails();
} catch {
  trapped = true;
}
if (waits !== exports.waits_expected() || !trapped) {
  throw new Error(`${waits} waits of ${exports.waits_expected()} ended as they should; a failure traps: ${trapped}`);
}
console.log(`node ${process.version}: ${waits} waits ended as they should, one that must not trapped`);
