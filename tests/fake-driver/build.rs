//! Binds the library's own symbols to itself: a process may have another driver's `cuInit` in its global scope, and a
//! look-up in the fake must never give that one.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // tidy: allow(env) cargo tells a build script its target so
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    }
}
