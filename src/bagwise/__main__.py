"""`python -m bagwise` is the command `bagwise`."""

import sys

from bagwise.extras import MissingExtraError, require


def main() -> None:
    """Run the command line, or say what it needs."""
    try:
        require("typer", "cli")
        from bagwise.cli import app

        app(prog_name="bagwise")
    except MissingExtraError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:  # while it is being loaded
        print("Stopped.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
