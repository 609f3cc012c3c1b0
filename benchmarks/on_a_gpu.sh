#!/usr/bin/env bash
# Everything that is to be measured on a GPU, the most wanted first; each step has its own limit of time.
#
#     benchmarks/on_a_gpu.sh RESULTS [--dry-run] [STEP ...]
#
# RESULTS gets a log of each step and the state of the published trial, so that a later run goes on with it. With
# names of steps, only these run. Needs this repository, pytest, pytest-xdist, pytest-timeout and scikit-learn, jax
# for the GPU, flax, optax, numpy and pillow. About 25 minutes.
set -u
cd "$(dirname "$0")/.." || exit
results=$(realpath -m "$1") dry= short=2048 long=16384
shift
[ "${1:-}" != --dry-run ] || { dry=--dry-run short=12 long=40; shift; }
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

measure() { # NAME SECONDS MODULE OPTIONS...
    local name=$1 seconds=$2 module=$3
    shift 3
    step "$name" "$seconds" python3 -m "benchmarks.$module" $dry "$@"
}

measure published 360 published_trial --seeds 3 --minutes 4.5 --data "$results/data" --keep "$results/kept" \
    --json "$results/published.json"
measure gated-2048 150 gpu_gated --rounds 5 --lengths "$short"
# Workers of pytest share the GPU's memory; the test of the compilation cache needs one.
step tests 150 env JAX_PLATFORMS=${dry:+cpu} XLA_PYTHON_CLIENT_PREALLOCATE=false \
    JAX_COMPILATION_CACHE_DIR="$(mktemp -d)" JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 \
    python3 -m pytest --noconftest -W default -n 8 --tb short -rf \
    tests/trainables/engine/test_neighbours.py tests/trainables/test_replay.py tests/trainables/layers/recurrence
measure neighbours 200 neighbours --tasks small --slots 1 2 4 --seconds 1
measure neighbours-listops 200 neighbours --tasks listops --slots 1 4 --seconds 2
measure layers-2048 300 gpu_layers --lengths 2048
measure layers-16384 150 gpu_layers --lengths 16384 --rounds 3 --cases min_gru rot_gated s6 delta_net/128
measure slots 90 slots --tasks small --slots 1 4 16 --processes 1 4 --seconds 2
measure slots-bits 60 slots --tasks small --slots 1 4 16 --processes --seconds 2 --bits
[ -n "$dry" ] || measure small 60 many_small_trials --skip-sweeps
measure gated-16384 150 gpu_gated --rounds 3 --lengths "$long"
tar -C "$results" -czf "$results/logs.tgz" $(cd "$results" && ls *.txt)
