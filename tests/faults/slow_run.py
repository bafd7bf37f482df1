"""``retrograd`` with one update or one save that takes a minute: ``slow_run.py update|save MARK train …``.

It is the second save, or the first update after the first save; ``MARK`` is made when it begins.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from injection import FaultyDisk, installed

from retrograd import cli
from retrograd.agents.value import ValueAgent

MINUTE_SECONDS = 60.0


def linger(mark: Path) -> None:
    if not mark.exists():
        mark.touch()
        time.sleep(MINUTE_SECONDS)


class SlowDisk(FaultyDisk):
    """Writing the second ``agent.pt`` takes a minute."""

    def __init__(self, mark: Path | None) -> None:
        super().__init__()
        self._mark, self.saved = mark, 0

    def before(self, operation: str, path: Path) -> None:
        if operation == "write" and path.name == "agent.pt" and self.saved and self._mark is not None:
            linger(self._mark)

    def replace(self, source: Path, target: Path) -> None:
        super().replace(source, target)
        self.saved += target.name == "latest"  # the last thing but rotation


def main(slow: str, mark: Path, words: list[str]) -> int:
    disk, update = SlowDisk(mark if slow == "save" else None), ValueAgent.update

    def slow_update(self: Any, batch: Any, *, step: int) -> Any:
        if disk.saved:
            linger(mark)
        return update(self, batch, step=step)

    if slow == "update":
        ValueAgent.update = slow_update  # type: ignore[method-assign]
    with installed(disk):
        return cli.main(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
