"""Stand-in of a prewarmed driver, without the imports of a real one: `... --prewarm --root ROOT`.

If the file `stuck` exists under ROOT, it never answers an order; if `broken` exists, it ends at once.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from orchestrator.driver import prewarmed


def run(arguments: Sequence[str]) -> int:
    """Print the arguments and a variable, or a secret; the last argument is the exit code."""
    if arguments[0] == "token":
        sys.stdout.write(f"{os.environ['SOME_TOKEN']}\n")
        return 0
    sys.stdout.write(f"{list(arguments)} {os.environ['SWEEP_OWNER']} {sys.argv}\n")
    if arguments[-1] == "raise":
        raise ValueError("poison")
    return int(arguments[-1])


if __name__ == "__main__":
    root = Path(sys.argv[-1])
    if (root / "broken").exists():
        sys.exit(1)
    if (root / "stuck").exists():
        os.write(1, b"ready\n")
        time.sleep(60)
    code = prewarmed.wait(str(root), run, modules=())
    sys.stdout.flush()
    os._exit(code)
