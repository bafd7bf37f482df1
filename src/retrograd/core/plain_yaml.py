"""YAML as data and nothing else: no Python objects, and no aliases, which can stand for more than fits into memory."""

from __future__ import annotations

from typing import Any

import yaml

MAX_CHARACTERS = 1 << 20
MAX_DEPTH = 50


def load_plain_yaml(text: str) -> Any:
    """What the text says, or ``yaml.YAMLError``."""
    if len(text) > MAX_CHARACTERS:
        raise yaml.YAMLError(f"it has {len(text)} characters, more than {MAX_CHARACTERS}")
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):  # looked at before anything is built of it
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias (*name), which no config needs")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise yaml.YAMLError(f"it is nested more than {MAX_DEPTH} deep")
    return yaml.safe_load(text)
