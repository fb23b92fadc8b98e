"""`python -m bench lake|diff|pages|ui|streams|scale`: one of the suites. `--help` tells what each can be asked for."""

import importlib
import sys

from bench.harness import run_suite

if __name__ == "__main__":
    sys.exit(run_suite(importlib.import_module(f"bench.{sys.argv[1]}").SUITE, sys.argv[2:]))
