#!/bin/sh
# Runs what is in this folder on a machine with a GPU: `./run` the tests and the examples, `./run tests`, `./run examples`,
# `./run benches` or `./run checks` some of it, `./run soak [SEED [MINUTES]]` the soak, `./run bench [ARGUMENT..]` the A/B program. Records go to the folder OUT, where that is set, else to `results` here.
set -u
cd "$(dirname "$0")" || exit 1
out=${OUT:-results}
mkdir -p "$out" || exit 1
failed=0

step() {
    echo "==> $*"
    "$@" || { code=$?; echo "<== failed with code $code: $*"; failed=1; }
}

# The same of a program whose output is the record, which goes to this file of OUT.
record() {
    file=$out/$1
    shift
    echo "==> $* > $file"
    "$@" > "$file" || { code=$?; echo "<== failed with code $code: $*"; failed=1; }
}

tests() {
    # One at a time: kernels that fault on purpose stay apart from waits that are timed.
    step ./cuda gpu:: --test-threads 1
    step ./operations gpu:: --test-threads 1
    step ./cudarc_streams gpu::
    step ./compile --nocapture
    step ./launches --nocapture
    step ./machine gpu:: --test-threads 1
    step ./collectives gpu:: --test-threads 1
}

examples() {
    step ./cuda_wait
    step ./device_ops --device cuda
    step ./saxpy --device cuda
    step ./pipeline --device cuda --svg "$out/pipeline.svg"
    step ./multi_device --device cuda
    step ./cudarc_interop
    step ./decode_loop --device cuda --json "$out/decode_loop-cuda.jsonl"
}

benches() {
    step ./gpu --json "$out/gpu.jsonl"
    step ./decode_loop --device cuda --host all --no-work --json "$out/decode_loop-hosts-cuda.jsonl"
    step ./wake --json "$out/wake.jsonl"
    step ./watch --json "$out/watch.jsonl"
    record ops.jsonl ./ops --device cuda
    record tensors.jsonl ./tensors
    record ranks.jsonl ./ranks
}

# Ways of waiting beside each other: `--quick` takes under 4 minutes.
bench() {
    step ./bench --out "$out/bench" "$@"
}

# What a release is held to: some minutes.
checks() {
    step ./gpu_checks --full --json "$out/gpu_checks.jsonl"
}

# All hosts, plans and ways of letting go at once, and processes beside them whose contexts are broken: 9 minutes.
soak() {
    seed=${1:-1}
    step ./gpu_checks --check soak --seed "$seed" --minutes "${2:-9}" --json "$out/gpu_soak-$seed.jsonl"
}

case ${1:-all} in
    tests) tests ;;
    examples) examples ;;
    benches) benches ;;
    checks) checks ;;
    soak) shift; soak "$@" ;;
    bench) shift; bench "$@" ;;
    all) tests; examples ;;
    *) echo "usage: ./run [tests|examples|benches|checks|soak [SEED [MINUTES]]|bench [ARGUMENT..]]" >&2; exit 2 ;;
esac
exit "$failed"
