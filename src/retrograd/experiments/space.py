"""What a sweep varies: the words of its command line as fixed values, lists and ranges.

``agent=dqn,ppo`` is a list, ``preset.lr=log(1e-5,1e-2)`` a range, ``wandb.tags=[a,b]`` one value. Values stay text:
the run that gets them reads them as it reads its own command line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from retrograd.core.errors import UsageError, suggest

RANGES = {
    "log": "log(low,high): evenly over the orders of magnitude",
    "uniform": "uniform(low,high): evenly over the values",
    "int": "int(low,high) or int(low,high,log): whole numbers, both ends included",
    "choice": "choice(a,b,…): one of these",
}
_CALL = re.compile(r"(\w+)\((.*)\)", re.DOTALL)
_PAIRS = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, searched evenly by value or by magnitude."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def text(self, value: float) -> str:
        return str(round(value)) if self.whole else repr(float(value))

    def holds(self, value: object) -> bool:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and self.low <= value <= self.high  # type: ignore[operator]


@dataclass(frozen=True)
class Space:
    """Every key of a sweep once: fixed, one of a list, or somewhere in a range."""

    fixed: Mapping[str, str]
    lists: Mapping[str, tuple[str, ...]]
    ranges: Mapping[str, Range]

    @property
    def keys(self) -> tuple[str, ...]:
        return (*self.fixed, *self.lists, *self.ranges)

    def grid(self) -> list[dict[str, str]]:
        """Every combination of the lists, the last list changing fastest."""
        return [dict(zip(self.lists, values, strict=True)) for values in product(*self.lists.values())]

    def corners(self) -> list[dict[str, str]]:
        """Settings at the ends of every range, with each list's first and last value."""
        return [
            {
                **{key: values[end] for key, values in self.lists.items()},
                **{key: each.text((each.low, each.high)[end]) for key, each in self.ranges.items()},
            }
            for end in (0, -1)
        ]


def parse_space(words: Iterable[str]) -> Space:
    """The space that ``key=value`` words span; every mistake is a UsageError that names the word."""
    fixed: dict[str, str] = {}
    lists: dict[str, tuple[str, ...]] = {}
    ranges: dict[str, Range] = {}
    for word in words:
        key, sign, text = word.partition("=")
        if not sign or not re.fullmatch(r"[\w.@/]+", key):
            raise UsageError(f"{word!r} is not key=value, e.g. agent=dqn,ppo or preset.lr=log(1e-5,1e-2)")
        if key in fixed or key in lists or key in ranges:
            raise UsageError(f"{key} is given twice; several values of one key are written {key}=a,b")
        values, span = _parse_values(word, text)
        if span is not None:
            ranges[key] = span
        elif len(values) > 1:
            lists[key] = values
        else:
            fixed[key] = values[0]
    return Space(fixed, lists, ranges)


def _parse_values(word: str, text: str) -> tuple[tuple[str, ...], Range | None]:
    call = _CALL.fullmatch(text.strip())
    if call is None:
        return _distinct(word, split_list(word, text)), None
    name, inside = call[1], call[2]
    if name not in RANGES:
        raise UsageError(
            f"{word!r}: {name} is no range; there are {'; '.join(RANGES.values())}.{suggest(name, RANGES)}"
        )
    parts = split_list(word, inside)
    if name == "choice":
        return _distinct(word, parts), None
    log = name == "log" or (name == "int" and len(parts) == 3 and parts[2] == "log")
    if len(parts) != 2 and not (name == "int" and log):
        raise UsageError(f"{word!r}: write {RANGES[name]}")
    return (), _make_range(word, parts[0], parts[1], log=log, whole=name == "int")


def _make_range(word: str, low_text: str, high_text: str, *, log: bool, whole: bool) -> Range:
    try:
        low, high = float(low_text), float(high_text)
    except ValueError:
        raise UsageError(f"{word!r}: the ends of a range are numbers") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UsageError(f"{word!r}: the low end must be below the high end")
    if log and low <= 0:
        raise UsageError(f"{word!r}: a range over magnitudes begins above 0")
    if whole and not (low.is_integer() and high.is_integer()):
        raise UsageError(f"{word!r}: the ends of int are whole numbers")
    return Range(low, high, log, whole)


def _distinct(word: str, values: Sequence[str]) -> tuple[str, ...]:
    twice = sorted({value for value in values if values.count(value) > 1})
    if twice:
        raise UsageError(f"{word!r} lists {', '.join(twice)} twice; the same run twice says nothing new")
    return tuple(values)


def split_list(word: str, text: str) -> list[str]:
    """Split at commas outside brackets and quotes."""
    parts, closing, quote, begin = [], [], "", 0
    for place, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in _PAIRS:
            closing.append(_PAIRS[letter])
        elif letter in _PAIRS.values():
            if not closing or closing.pop() != letter:
                raise UsageError(f"{word!r}: {letter!r} closes nothing")
        elif letter == "," and not closing:
            parts.append(text[begin:place].strip())
            begin = place + 1
    if quote or closing:
        raise UsageError(f"{word!r}: {quote or closing[-1]} is missing at the end")
    parts.append(text[begin:].strip())
    if len(parts) > 1 and "" in parts:
        raise UsageError(f"{word!r} has an empty value between its commas")
    return parts
