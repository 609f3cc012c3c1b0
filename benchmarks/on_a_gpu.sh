#!/usr/bin/env bash
# Measurements that need a GPU; each step has its own time limit. About thirteen minutes.
#
#     benchmarks/on_a_gpu.sh RESULTS [--dry-run] [STEP ...]
#
# RESULTS gets a log of each step; names of steps select some of them. Needs this repository, pytest, pytest-xdist,
# pytest-timeout and scikit-learn, jax for the GPU, flax, optax, numpy and pillow.
set -u
cd "$(dirname "$0")/.." || exit
results=$(realpath -m "$1") dry= short=2048 long=16384 trials="16 64" few=
shift
[ "${1:-}" != --dry-run ] || { dry=--dry-run short=12 long=40 trials=2 few="--calls 3 --rounds 1"; shift; }
wanted=" $* "
mkdir -p "$results"
export PYTHONUNBUFFERED=1 PYTHONPATH=$PWD

step() { # NAME SECONDS COMMAND...
    local name=$1 seconds=$2
    shift 2
    [[ $wanted == "  " || $wanted == *" $name "* ]] || return 0
    SECONDS=0
    timeout "$seconds" "$@" > "$results/$name.txt" 2>&1
    echo "$name: exit code $? after $SECONDS s" | tee -a "$results/steps.txt"
}

step recurrences-2048 200 python3 -m benchmarks.gpu $dry --rounds 5 --lengths "$short"
# Workers of pytest share the GPU's memory; the test of the compilation cache needs one.
step tests 150 env JAX_PLATFORMS=${dry:+cpu} XLA_PYTHON_CLIENT_PREALLOCATE=false \
    JAX_COMPILATION_CACHE_DIR="$(mktemp -d)" JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 \
    python3 -m pytest --noconftest -W default -n 8 --tb short -rf \
    tests/trainables/engine/test_neighbours.py tests/trainables/test_replay.py tests/trainables/layers/recurrence
# Steps of all trials together beside a hand-written `jax.vmap`.
for slots in $trials; do
    step "slots-$slots" 150 python3 -m benchmarks.many_small_trials --skip-sweeps --traced --slots "$slots" $few
done
step recurrences-16384 200 python3 -m benchmarks.gpu $dry --rounds 3 --lengths "$long"
tar -C "$results" -czf "$results/logs.tgz" $(cd "$results" && ls *.txt)
