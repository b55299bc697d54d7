"""The program ``offpath``. Packages that only its commands need are extras."""

import sys

from .extras import missing

EXTRAS = ("run", "bench", "sql", "view")  # named as the commands; the other ones need ``cli``


def main() -> None:
    """Runs the command line; a package that is missing is one line that names the extra, and status 1."""
    try:
        from .cli import main as run

        run()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", __package__):
            raise
        extra = sys.argv[1] if sys.argv[1:] and sys.argv[1] in EXTRAS else "cli"
        print(f"offpath: {missing(package, extra)}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
