"""`python -m pipelines.jars [host] [s3] [jdbc] [broker]`: fetches the pinned JARs. A second run does nothing.

Rule: exit code 0 with the JARs in place, else 1 with one sentence and its remedy.
"""

import argparse
import sys

from backend.errors import LakehouseError
from pipelines.jars import CENTRAL, FOLDERS, HOST, resolve


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipelines.jars", description="Fetch the JARs that Weir needs.")
    parser.add_argument("--repository", metavar="URL", help=f"a mirror to fetch from instead of {CENTRAL}")
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"{', '.join(FOLDERS)}; by default {HOST}")
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.sets) - set(FOLDERS):
        parser.error(f"there is no set {', '.join(sorted(unknown))}: there are {', '.join(FOLDERS)}")
    for jars in arguments.sets or [HOST]:
        try:
            fetched = resolve(FOLDERS[jars], jars, repository=arguments.repository)
        except LakehouseError as exc:
            sys.stderr.write(f"error: {exc.message}\nhint: {exc.hint}\n")
            return exc.exit_code
        sys.stdout.write(f"JARs {'fetched into' if fetched else 'complete in'} {FOLDERS[jars]}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
