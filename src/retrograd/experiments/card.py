"""The card of an exported agent: what it is, what it scored under which protocol, how to use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml


def make_card(
    config: Mapping[str, Any],
    metrics: Mapping[str, Any],
    *,
    step: int,
    env_frames: int,
    protocol: str,
    name: str,
    video: bool,
) -> str:
    """Markdown with the front matter that model hubs read; scores only where there was an evaluation."""
    game, agent = config["env"]["game_id"], config["agent"]["name"]
    tags = [game, agent, "deep-reinforcement-learning", "reinforcement-learning"]
    front: dict[str, Any] = {"library_name": "retrograd", "tags": [*tags, *(["atari"] if "ALE/" in game else [])]}
    if "mean_return" in metrics:
        reward = {
            "type": "mean_reward",
            "value": f"{metrics['mean_return']:.2f} +/- {metrics['std_return']:.2f}",
            "name": "mean_reward",
            "verified": False,
        }
        result = {
            "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
            "dataset": {"name": game, "type": game},
            "metrics": [reward],
        }
        front["model-index"] = [{"name": agent, "results": [result]}]
    lines = [
        "---",
        yaml.safe_dump(front, sort_keys=False, allow_unicode=True).rstrip(),
        "---",
        f"# {agent} on {config['env']['name']}",
        "",
        f"Trained with Retrograd for {step:,} decisions ({env_frames:,} frames), seed {config['seed']}.",
        *([f"Preset of the zoo: `{config['zoo']}`."] if config.get("zoo") else []),
        "",
        "## Score",
        *_scores(metrics),
        "",
        f"Protocol: {protocol}.",
        *(["", "A recorded game: [video.mp4](video.mp4)."] if video else []),
        "",
        "## Use",
        "```sh",
        f"retrograd evaluate {name}",
        f"retrograd video {name} --output game.mp4",
        f"retrograd watch {name}",
        "```",
        "",
        "`agent.pt` holds the weights and no code; `config.yaml` is the whole config; `manifest.json` has size and",
        "SHA-256 of both, which are checked before anything is read.",
        "",
    ]
    return "\n".join(lines)


def _scores(metrics: Mapping[str, Any]) -> list[str]:
    if "mean_return" not in metrics:
        return ["This checkpoint was not evaluated."]
    human = metrics.get("human_normalized")
    return [
        "| games | mean | std | min | median | max | human-normalized |",
        "|---|---|---|---|---|---|---|",
        f"| {metrics['episodes']} | {metrics['mean_return']:.2f} | {metrics['std_return']:.2f} "
        f"| {metrics['min_return']:g} | {metrics['median_return']:g} | {metrics['max_return']:g} "
        f"| {'–' if human is None else f'{human:.3f}'} |",
        "",
        "Full games, unclipped rewards.",
    ]
