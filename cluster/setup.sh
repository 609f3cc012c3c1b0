#!/bin/sh
# The environment of a node, in ~/sweeps/.venv: that of the checkout, or that of the wheel beside this folder.
#
#     sh ~/sweeps/cluster/setup.sh JOBS=1 CUDA=13 PYTHON=python3.11    # the variables of `make setup`
set -eu
cd "$(dirname "$0")/.."
[ ! -f Makefile ] || exec make setup "$@"
CUDA='' JOBS='' PYTHON=python3
for setting; do
    case $setting in
        CUDA=*) CUDA=${setting#*=} ;;
        JOBS=*) JOBS=${setting#*=} ;;
        PYTHON=*) PYTHON=${setting#*=} ;;
        *) echo "setup.sh: must be given CUDA=, JOBS= or PYTHON=, not $setting" >&2; exit 2 ;;
    esac
done
set -- *.whl
[ -f "$1" ] || { echo "setup.sh: $PWD must hold a checkout or the project's wheel; copy one there" >&2; exit 2; }
[ -x .venv/bin/python ] || "$PYTHON" -m venv .venv
# Several machines need the clients of PostgreSQL and S3, which the locked requirements of a checkout hold.
.venv/bin/python -m pip install --quiet "$1[postgres,s3${CUDA:+,cuda$CUDA}${JOBS:+,jobs}]"
