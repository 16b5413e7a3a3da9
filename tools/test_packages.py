# SPDX-License-Identifier: Apache-2.0
"""Print the system packages that only slow tests need, one a line.

Runs before anything is installed, so it uses the standard library only."""

from __future__ import annotations

import sys

PACKAGES = ("podman", "crun")


def main() -> int:
    """Print each package once."""
    print("\n".join(PACKAGES))
    return 0


if __name__ == "__main__":
    sys.exit(main())
