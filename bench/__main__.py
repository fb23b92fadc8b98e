"""`python -m bench lake|diff|pages|ui|streams|scale|maintenance|query`: one suite. `--help` tells what each takes."""

import importlib
import sys

from bench.harness import run_suite

if __name__ == "__main__":
    sys.exit(run_suite(importlib.import_module(f"bench.{sys.argv[1]}").SUITE, sys.argv[2:]))
