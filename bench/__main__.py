"""`python -m bench lake|diff|…`: one suite. `--help` tells what each takes."""

import importlib
import sys

from bench.harness import run_suite

SUITES = ("lake", "diff", "pages", "ui", "streams", "scale", "maintenance", "query")

if __name__ == "__main__":
    if not set(sys.argv[1:2]) & set(SUITES):
        sys.exit(f'usage: make bench SUITE={"|".join(SUITES)} [ARGS="--help"]')
    sys.exit(run_suite(importlib.import_module(f"bench.{sys.argv[1]}").SUITE, sys.argv[2:]))
