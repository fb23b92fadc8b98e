"""`python -m pipelines.jars`: fetches the pinned JARs. A second run does nothing.

Rule: exit code 0 with the JARs in place, else 1 with one sentence and its remedy.
"""

import argparse
import sys

from backend.errors import LakehouseError
from pipelines.jars import CENTRAL, LIB, resolve


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipelines.jars", description="Fetch the JARs that Weir needs.")
    parser.add_argument("--repository", metavar="URL", help=f"a mirror to fetch from instead of {CENTRAL}")
    repository = parser.parse_args(argv).repository
    try:
        fetched = resolve(repository=repository)
    except LakehouseError as exc:
        sys.stderr.write(f"error: {exc.message}\nhint: {exc.hint}\n")
        return exc.exit_code
    sys.stdout.write(f"JARs {'fetched into' if fetched else 'complete in'} {LIB}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
