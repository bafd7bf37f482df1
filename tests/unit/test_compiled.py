"""Extensions that do not fit are left alone: plain code does the work then, no run ends in an error for it."""

from types import SimpleNamespace

import pytest

from retrograd.core import compiled
from retrograd.core.compiled import load_extension


@pytest.mark.parametrize(
    ("module", "used"),
    [
        (SimpleNamespace(VERSION=2), True),
        (SimpleNamespace(VERSION=1), False),
        (SimpleNamespace(VERSION=2, USABLE=1), True),
        (SimpleNamespace(VERSION=2, USABLE=0), False),
    ],
)
def test_a_build_of_other_sources_or_for_another_processor_is_not_used(module, used, monkeypatch):
    monkeypatch.setattr(compiled.importlib, "import_module", lambda name: module)
    assert load_extension("anything", version=2) is (module if used else None)


def test_what_was_not_built_is_none():
    assert load_extension("retrograd._never_built", version=1) is None
