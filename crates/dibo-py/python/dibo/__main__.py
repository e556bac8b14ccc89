"""``python -m dibo`` is the command."""

from __future__ import annotations

import sys

from ._experiments import command


def main() -> int:
    """The command with this process's arguments."""
    try:
        return command(sys.argv[1:])
    except (ValueError, RuntimeError) as error:
        print(f"dibo: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever stops reading has what it wanted
        return 0


if __name__ == "__main__":
    sys.exit(main())
