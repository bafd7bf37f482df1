"""Who may import whom, and what no module may call."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "retrograd"
# modules beside the rooms
FREE = {"build", "config", "config_checks", "cli", "api", "doctor", "schema", "__init__", "__main__"}
LOWER = {"core", "networks", "envs", "replay", "planning", "tracking", "agents", "exploration", "training"}
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    **{room: {"core"} for room in ("networks", "envs", "replay", "planning", "tracking")},
    **{room: {"core", "networks", "planning"} for room in ("agents", "exploration")},
    "training": {"core", "tracking"},
    **dict.fromkeys(("experiments", "distributed", "contrib"), LOWER),
    "dashboard": set(),
}
HYDRA_READERS = {"build", "config", "cli"}
UNSAFE = {
    "pickle.load",
    "pickle.loads",
    "pickle.Unpickler",
    "yaml.load",
    "yaml.unsafe_load",
    "eval",
    "exec",
    "os.system",
}


def imports(tree: ast.AST) -> Iterator[str]:
    """Absolute module names, of imports inside functions too; a relative import is its own error."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def import_problems(relative: str, source: str) -> list[str]:
    parts = Path(relative).with_suffix("").parts
    room, allowed = parts[0], MAY_IMPORT.get(parts[0], set())
    if room not in MAY_IMPORT and room not in FREE:
        return [f"{relative}: {room!r} is neither a room nor one of the free modules"]
    problems = []
    for name in imports(ast.parse(source)):
        top, _, rest = name.partition(".")
        target = rest.split(".")[0]
        if top == "retrograd" and room in MAY_IMPORT and target not in {room, *allowed}:
            problems.append(f"{relative}: {room} may not import {name}")
        if top in {"hydra", "omegaconf"} and room not in HYDRA_READERS:
            problems.append(f"{relative}: only {sorted(HYDRA_READERS)} may import {top}")
        if top in {"gymnasium", "ale_py", "pettingzoo"} and room != "envs":
            problems.append(f"{relative}: only envs may import {top}")
    return problems


def call_problems(relative: str, source: str) -> list[str]:
    problems = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        options = {word.arg: ast.unparse(word.value) for word in node.keywords}
        unsafe = (
            name in UNSAFE
            or (name == "torch.load" and options.get("weights_only") != "True")
            or options.get("allow_pickle", "False") != "False"
            or options.get("shell", "False") != "False"
        )
        if unsafe:
            problems.append(f"{relative}:{node.lineno}: {ast.unparse(node)}")
    return problems


def modules() -> Iterator[tuple[str, str]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def test_rooms_import_only_what_they_may() -> None:
    assert [problem for name, source in modules() for problem in import_problems(name, source)] == []


def test_no_module_runs_code_it_was_not_shipped_with() -> None:
    assert [problem for name, source in modules() for problem in call_problems(name, source)] == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("core/x.py", "from retrograd.envs import y"),
        ("agents/x.py", "def f():\n    import retrograd.replay.store"),
        ("agents/x.py", "from retrograd import replay"),
        ("training/x.py", "from retrograd.agents.dqn import DQN"),
        ("dashboard/x.py", "from retrograd.core.types import Step"),
        ("experiments/x.py", "from retrograd.build import build"),
        ("training/x.py", "from omegaconf import OmegaConf"),
        ("api.py", "import hydra"),
        ("cli/x.py", "import gymnasium"),
        ("utils/x.py", ""),
        ("odds.py", ""),
    ],
)
def test_a_forbidden_import_is_found(name: str, source: str) -> None:
    assert len(import_problems(name, source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "pickle.loads(b)",
        "torch.load(p)",
        "torch.load(p, weights_only=False)",
        "np.load(p, allow_pickle=True)",
        "yaml.load(t, yaml.Loader)",
        "eval(t)",
        "exec(t)",
        "subprocess.run(c, shell=True)",
    ],
)
def test_an_unsafe_call_is_found(source: str) -> None:
    assert len(call_problems("x.py", source)) == 1


def test_what_is_allowed_passes() -> None:
    assert (
        import_problems("agents/x.py", "from retrograd.agents.y import z\nfrom retrograd.networks import heads") == []
    )
    assert import_problems("build.py", "import hydra\nfrom retrograd.envs import y") == []
    assert call_problems("x.py", "torch.load(p, weights_only=True); np.load(p); model.eval()") == []
