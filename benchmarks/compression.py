"""How much memory a replay of real play takes: raw and compressed, of random, scripted and trained players.

    python benchmarks/compression.py pong                                        random and scripted
    python benchmarks/compression.py pong --checkpoint outputs/x/checkpoints/best --transitions 100000
    python benchmarks/compression.py breakout --output breakout.json

Games are played as in training, in several rows, and every step goes into both storages exactly as a run would put it
there. Bytes count everything: frames, actions, rewards, flags, marks, and what the interpreter adds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scripted_players import make_player

from retrograd import api, build
from retrograd.config import ConfigManager
from retrograd.core.types import EnvSpec, Step
from retrograd.replay import CompressedStorage, NStep, RawStorage, Replay, Uniform

STORAGES = {"raw": RawStorage, "compressed": CompressedStorage}
Act = Callable[[np.ndarray], np.ndarray]  # [N, 4, 84, 84] -> [N]


def random_player(spec: EnvSpec, seed: int) -> Act:
    rng = np.random.default_rng(seed)
    return lambda obs: rng.integers(spec.action.n, size=len(obs))


def scripted_player(game: str, spec: EnvSpec, seed: int) -> Act:
    """A twentieth of its actions are random, as a learner's are."""
    player, rng = make_player(game), np.random.default_rng(seed)

    def act(obs: np.ndarray) -> np.ndarray:
        stray = rng.random(len(obs)) < 0.05
        return np.where(stray, rng.integers(spec.action.n, size=len(obs)), player(obs[:, -1]))

    return act


def trained_player(agent: Any, num_envs: int, step: int) -> Act:
    """Explores as it does while it learns."""
    state = agent.initial_state(num_envs)
    return lambda obs: agent.act(obs, state, step=step, explore=True).action


def record(envs: Any, act: Act, transitions: int, label: str, frames_file: str | None) -> dict[str, Any]:
    """Play, store, and weigh what is stored. The first row's frames go to a file where one is named."""
    rng = np.random.default_rng(0)
    replays = {
        name: Replay(storage(envs.spec, transitions, envs.num_envs), Uniform(), NStep(1), rng)
        for name, storage in STORAGES.items()
    }
    scores: list[float] = []
    told = time.monotonic()
    for t in range(transitions // envs.num_envs + 8):
        obs = envs.observe()
        action = act(obs)
        envs.send(action)
        answer = envs.recv()
        step = Step(obs, action, answer.reward, answer.terminated, answer.truncated, answer.reset, answer.next_obs)
        for replay in replays.values():
            replay.add(step)
        scores += [game.score for game in answer.episodes]
        if time.monotonic() - told > 10:
            told = time.monotonic()
            print(f"{label}: {t * envs.num_envs:,} of {transitions:,}", file=sys.stderr)
    figures: dict[str, Any] = {
        f"{name}_bytes_per_transition": replay.diagnostics()["bytes"] / len(replay) for name, replay in replays.items()
    }
    check_equal(replays["raw"], replays["compressed"])
    if frames_file:
        np.save(frames_file, replays["raw"].storage.read_frames(*replays["raw"].storage.kept()[0])[""])
    return figures | {
        "player": label,
        "transitions": len(replays["compressed"]),
        "games": len(scores),
        "mean_score": float(np.mean(scores)) if scores else None,
        "compressed_gb_per_million": figures["compressed_bytes_per_transition"] / 1000,
        "ratio": figures["raw_bytes_per_transition"] / figures["compressed_bytes_per_transition"],
    }


def check_equal(raw: Replay[Any], compressed: Replay[Any]) -> None:
    """The figures count only if nothing was lost."""
    for row, first, end in compressed.storage.kept():
        oldest = max(first, int(raw.storage.oldest()[row]))
        for begin in range(oldest, end, 4096):
            parts = [replay.storage.read_frames(row, begin, min(begin + 4096, end))[""] for replay in (raw, compressed)]
            if not np.array_equal(*parts):
                raise SystemExit(f"row {row}: the compressed frames from {begin} on differ from the raw ones")


def players(options: argparse.Namespace) -> list[tuple[str, Any, Callable[[EnvSpec], Act]]]:
    """Name, what makes its environments, and how it acts."""
    words = [f"env={options.game}", "env_protocol=paper_v4", f"training.num_envs={options.rows}"]
    builder = build.Builder(ConfigManager(None).compose([*words, f"seed={options.seed}"]))
    found: list[tuple[str, Any, Callable[[EnvSpec], Act]]] = []
    if "random" in options.players:
        found.append(("random", builder, lambda spec: random_player(spec, options.seed)))
    if "scripted" in options.players:
        found.append(("scripted", builder, lambda spec: scripted_player(options.game, spec, options.seed)))
    if options.checkpoint:
        checkpoint, config = api.read_checkpoint(options.checkpoint, {"hardware.torch_threads": 1})
        config = config.with_values({"training.num_envs": options.rows})
        its_builder, agent = build.restore_agent(checkpoint, config)
        name = f"{config['agent']['name']} after {checkpoint.step:,} steps"
        found.append((name, its_builder, lambda spec: trained_player(agent, options.rows, checkpoint.step)))
    return found


def table(game: str, results: list[dict[str, Any]]) -> str:
    lines = ["| game | player | mean score | raw bytes/transition | compressed | times smaller | GB per million |"]
    lines.append("|---|---|---|---|---|---|---|")
    for one in results:
        score = "no game ended" if one["mean_score"] is None else f"{one['mean_score']:,.1f} ({one['games']} games)"
        cells = [game, one["player"], score, f"{one['raw_bytes_per_transition']:,.0f}"]
        cells += [f"{one['compressed_bytes_per_transition']:,.0f}", f"{one['ratio']:.1f}"]
        cells.append(f"{one['compressed_gb_per_million']:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("game", help="pong, breakout, space_invaders, or any other for random and trained players")
    parser.add_argument("--checkpoint", help="of an agent that learned this game")
    parser.add_argument("--players", nargs="*", default=["random", "scripted"], choices=["random", "scripted"])
    parser.add_argument("--transitions", type=int, default=100_000, help="of each player")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save-frames", help="write one row of the last player to this .npy file, for replay.py")
    parser.add_argument("--output", help="write all figures to this JSON file")
    options = parser.parse_args()
    results = []
    for name, builder, make in players(options):
        envs = builder.environments()
        try:
            results.append(record(envs, make(envs.spec), options.transitions, name, options.save_frames))
        finally:
            envs.close()
    print(table(options.game, results))
    if options.output:
        Path(options.output).write_text(json.dumps({"game": options.game, "players": results}, indent=1))


if __name__ == "__main__":
    main()
