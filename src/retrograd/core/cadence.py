"""When is something due? Pure functions of a counter that may stride by any number of rows."""

from __future__ import annotations

from fractions import Fraction


def crossed(before: int, after: int, period: int | None) -> bool:
    """Whether a multiple of ``period`` lies in (before, after]; never, for ``None``."""
    return period is not None and after // period > before // period


def due(before: int, after: int, rate: Fraction) -> int:
    """How many events of ``rate`` per unit fall in (before, after], with nothing to remember.

    ``due(0, 8, Fraction(1, 4)) == 2``: one update every four steps gives two for eight rows.
    """
    return after * rate.numerator // rate.denominator - before * rate.numerator // rate.denominator
