"""What every config key may hold: type, range and choices, checked before anything starts.

Defaults live in the YAML files alone; this table only says what is possible. Keys of the agent
group depend on ``agent.kind``: each kind lists its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from retrograd.core.errors import UsageError, suggest


@dataclass(frozen=True, slots=True)
class Rule:
    """One key: ``kind`` is int, float, bool, str or list."""

    kind: type
    low: float | None = None
    high: float | None = None
    choices: tuple[Any, ...] = ()
    optional: bool = False
    above: bool = False  # the low end itself is not allowed

    def problem(self, value: Any) -> str | None:
        """Why the value is impossible, or None."""
        if value is None:
            return None if self.optional else f"must be {self.allowed()}, not null"
        if not self._typed(value):
            return f"must be {self.allowed()}"
        if self.choices and value not in self.choices:
            return f"must be {self.allowed()}.{suggest(str(value), map(str, self.choices))}"
        if self.kind in (int, float):
            number = _as_float(value)
            too_low = self.low is not None and (number < self.low or (self.above and number == self.low))
            if not math.isfinite(number) or too_low or (self.high is not None and number > self.high):
                return f"must be {self.allowed()}"
        return None

    def _typed(self, value: Any) -> bool:
        if isinstance(value, bool):
            return self.kind is bool
        if self.kind is float:
            return isinstance(value, int | float)
        return isinstance(value, self.kind)

    def allowed(self) -> str:
        """The allowed values, in words."""
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", list: "a list"}[
            self.kind
        ]
        if self.choices:
            words = "one of " + ", ".join(map(str, self.choices))
        elif self.low is not None and self.high is not None:
            words += f" {'above' if self.above else 'from'} {self.low} {'and up ' if self.above else ''}to {self.high}"
        elif self.low is not None:
            words += f" {'above' if self.above else 'of at least'} {self.low}"
        return words + (" or null" if self.optional else "")


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of more than 308 digits
        return math.inf


def _int(low: float, high: float | None = None, *, optional: bool = False) -> Rule:
    return Rule(int, low, high, optional=optional)


def _number(low: float, high: float | None = None, *, above: bool = False, optional: bool = False) -> Rule:
    return Rule(float, low, high, above=above, optional=optional)


def _choice(*choices: Any, optional: bool = False) -> Rule:
    return Rule(str, choices=choices, optional=optional)


_BOOL = Rule(bool)
_TEXT = Rule(str)
_NAME = Rule(str, optional=True)
_UNIT = _number(0, 1)
_POSITIVE = _number(0, above=True)

_ENCODER = _choice("nature", "padded", "small", "patches", "impala")

_EVERY_AGENT = {"kind": _TEXT, "name": _TEXT, "gamma": _UNIT, "frame_stack": _int(1, 4)}

_POLICY = {
    **_EVERY_AGENT,
    "network": _choice("shared", "separate"),
    "encoder": _ENCODER,
    "rollout_steps": _int(1),
    "gae_lambda": _UNIT,
    "normalize_advantage": _BOOL,
    "value_coef": _number(0),
    "entropy_coef": _number(0),
    "entropy_coef_end": _number(0, optional=True),
    "max_grad_norm": _number(0, above=True, optional=True),
    "eval_policy": _choice("sample", "greedy"),
}
_PPO = {
    **_POLICY,
    "epochs": _int(1),
    "minibatches": _int(1),
    "clip_range": _POSITIVE,
    "clip_range_end": _number(0, above=True, optional=True),
    "value_clip": _BOOL,
    "critic_optimizer": _choice("shared", "own"),
    "target_kl": _number(0, above=True, optional=True),
    "adaptive_kl": _number(0, above=True, optional=True),
    "adaptive_kl_end": _number(0, above=True, optional=True),
    "held": _UNIT,
    "fall": _choice("linear", "geometric"),
    "reward_ends_sum": _BOOL,
    "standardize_pixels": _BOOL,
}

AGENTS: dict[str, dict[str, Rule]] = {
    "value": {
        **_EVERY_AGENT,
        "network": _choice("nature", "dueling"),
        "double": _BOOL,
        "n_step": _int(1, 1000),
        "noisy": _BOOL,
        "noisy_sigma": _POSITIVE,
        "noisy_epsilon": _BOOL,
        "noise_each_step": _BOOL,
        "distributional": _choice("c51", "quantile", "iqn", optional=True),
        "atoms": _int(2),
        "v_min": Rule(float),
        "v_max": Rule(float),
        "c51_priority": _choice("kl", "cross_entropy"),
        "quantiles": _int(2),
        "kappa": _number(0),
        "iqn_samples": _int(1),
        "iqn_target_samples": _int(1),
        "iqn_policy_samples": _int(1),
        "iqn_cosines": _int(1),
        "munchausen": _BOOL,
        "munchausen_alpha": _UNIT,
        "munchausen_tau": _POSITIVE,
        "munchausen_clip": _number(-math.inf, 0),
        "munchausen_policy": _choice("target", "online"),
        "encoder": _ENCODER,
        "encoder_layer_norm": _BOOL,
        "standardize_pixels": _BOOL,
        "initial_weights": _choice("glorot", "fan_in", optional=True),
        "impala_scale": _int(1),
        "impala_pool": _int(1, optional=True),
        "spectral_norm": _BOOL,
        "head_layer_norm": _BOOL,
        "update_frequency": _int(1),
        "target_update_freq": _int(1),
        "replay_start_size": _int(0),
        "batch_size": _int(1),
        "max_grad_norm": _number(0, above=True, optional=True),
    },
    "ppo": _PPO,
    "a2c": _POLICY,
    "a3c": {**_POLICY, "workers": _int(1, 256)},
    "impala": {
        **{key: rule for key, rule in _POLICY.items() if key not in ("gae_lambda", "normalize_advantage")},
        "workers": _int(1, 256),
        "rollouts_per_update": _int(1, 1024),
        "rho_clip": _POSITIVE,
        "c_clip": _POSITIVE,
    },
    "recurrent_ppo": {
        **{key: rule for key, rule in _PPO.items() if key not in ("network", "standardize_pixels", "reward_ends_sum")},
        "cell": _choice("lstm", "gru"),
        "hidden_size": _int(1),
        "sequence_steps": _int(1, optional=True),
    },
    "pqn": {
        **_EVERY_AGENT,
        "network": _choice("nature", "dueling"),
        "layer_norm": _BOOL,
        "rollout_steps": _int(1),
        "epochs": _int(1),
        "minibatches": _int(1),
        "q_lambda": _UNIT,
        "max_grad_norm": _number(0, above=True, optional=True),
    },
    "random": _EVERY_AGENT,
    "constant": {**_EVERY_AGENT, "action": _int(0)},
}

_TRACKER = {
    "enabled": _BOOL,
    "project": _TEXT,
    "entity": _NAME,
    "run_name": _NAME,
    "tags": Rule(list),
}

GROUPS: dict[str, dict[str, Rule]] = {
    "preset": {
        "optimizer": _choice("deepmind_rmsprop", "adam", "torch_rmsprop"),
        "lr": _POSITIVE,
        "lr_end": _number(0, optional=True),
        "rmsprop_decay": _UNIT,
        "rmsprop_momentum": _UNIT,
        "rmsprop_eps": _POSITIVE,
        "adam_eps": _POSITIVE,
        "loss": _choice("huber", "squared"),
        "loss_reduction": _choice("sum", "mean"),
        "epsilon_start": _UNIT,
        "epsilon_end": _UNIT,
        "epsilon_decay_frames": _int(0),
        "reward_clip": _BOOL,
    },
    "replay": {
        "capacity": _int(1),
        "prioritized": _BOOL,
        "alpha": _UNIT,
        "beta_start": _UNIT,
        "beta_end": _UNIT,
        "beta_decay_frames": _int(1, optional=True),
        "priority_eps": _POSITIVE,
        "storage": _choice("raw", "compressed"),
    },
    "env": {"name": _TEXT, "game_id": _TEXT},
    "env_protocol": {
        "name": _TEXT,
        "repeat_action_probability": _UNIT,
        "flicker_probability": _number(0, 0.999),
        "frameskip": _int(1, 1),
        "action_repeat": _int(1, 4),
        "max_pool": _BOOL,
        "full_action_space": _BOOL,
        "noop_max": _int(0),
        "fire_reset": _BOOL,
        "screen_size": _int(36, 160),
        "terminal_on_life_loss_train": _BOOL,
        "terminal_on_life_loss_eval": _BOOL,
        "max_episode_frames": _int(1),
        "eval_max_episode_frames": _int(1),
    },
    "training": {
        "total_env_frames": _int(1),
        "total_episodes": _int(1, optional=True),
        "max_episode_steps": _int(1, optional=True),
        "num_envs": _int(1, 1024),
        "pause_at_frames": _int(1, optional=True),
        "double_buffered": _BOOL,
        "null_learner": _BOOL,
        "normalize_observations": _BOOL,
        "normalize_rewards": _BOOL,
        "warmup_random_steps": _int(0),
        "log_every_steps": _int(1),
        "light_eval_every_frames": _int(1, optional=True),
        "full_eval_every_frames": _int(1, optional=True),
        "eval_every_episodes": _int(1, optional=True),
        "checkpoint_every_episodes": _int(1, optional=True),
    },
    "eval": {
        "light_episodes": _int(1),
        "full_episodes": _int(1),
        "epsilon": _UNIT,
        "record_video": _BOOL,
        "num_envs": _int(1, 1024),
    },
    "hardware": {
        "device": _TEXT,
        "pin_memory": _BOOL,
        "channels_last": _BOOL,
        "fused_optimizer": _BOOL,
        "onednn_linear": Rule(bool, optional=True),
        "autocast": _choice("native", "bfloat16", "float16", optional=True),
        "compile": _BOOL,
        "cuda_graph": _BOOL,
        "expandable_segments": _BOOL,
        "keep_big_blocks": Rule(bool, optional=True),
        "measure_threads": _BOOL,
        "torch_threads": _int(1, optional=True),
        "env_threads": _int(1, optional=True),
        "backend": _choice("auto", "native", "gymnasium"),
        "workers": _BOOL,
        "worker_timeout_seconds": _POSITIVE,
        "worker_restarts_per_hour": _int(0),
        "watchdog_seconds": _number(0, above=True, optional=True),
        "memory_fraction": _number(0, 1, above=True),
        "memory_watch_fraction": _number(0, 1, above=True, optional=True),
    },
    "checkpoint": {
        "every_frames": _int(1, optional=True),
        "keep_last": _int(2),
        "keep_every_frames": _int(1, optional=True),
        "replay": _BOOL,
    },
    "wandb": {**_TRACKER, "mode": _choice("online", "offline")},
    "mlflow": {**_TRACKER, "tracking_uri": _NAME, "experiment": _NAME},
    "tensorboard": _TRACKER,
}

_ON_POLICY: dict[str, dict[str, Rule]] = {
    "preset": {
        "optimizer": _choice("adam", "tf_rmsprop"),
        "lr": _POSITIVE,
        "lr_end": _number(0, optional=True),
        "rmsprop_decay": _UNIT,
        "rmsprop_eps": _POSITIVE,
        "adam_eps": _POSITIVE,
        "reward_clip": _BOOL,
    },
    "replay": {},
}

_PQN: dict[str, dict[str, Rule]] = {
    "preset": {
        "lr": _POSITIVE,
        "lr_end": _number(0, optional=True),
        "adam_eps": _POSITIVE,
        "epsilon_start": _UNIT,
        "epsilon_end": _UNIT,
        "epsilon_decay_frames": _int(0),
        "reward_clip": _BOOL,
    },
    "replay": {},
}

# groups that hold other keys for some kinds of agent: what would have no effect is not there
KIND_GROUPS: dict[str, dict[str, dict[str, Rule]]] = {
    **dict.fromkeys(("ppo", "a2c", "a3c", "impala", "recurrent_ppo"), _ON_POLICY),
    "pqn": _PQN,
}

NULL_LEARNER_KINDS = ("value", "ppo", "a2c", "pqn")  # whose loops can run without their learner

_POLICIES = ("ppo", "a2c", "a3c", "impala", "recurrent_ppo")
# keys of groups that all kinds share, and that some leave alone: (kinds, why)
UNUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "eval.epsilon": (_POLICIES, "agent.eval_policy decides how a policy plays when it is judged"),
    "training.warmup_random_steps": ((*_POLICIES, "pqn"), "it learns from the first step on"),
}

TOP = {
    "seed": _int(0, 2**31 - 1),
    "output_dir": _TEXT,
    "run_name": _NAME,
    "zoo": _NAME,
    "track": _choice("A", "B", "custom"),
}


def check(config: Mapping[str, Any]) -> None:
    """Raise a UsageError that lists every key that is unknown, missing, ill-typed or out of range."""
    problems = list(_problems(config))
    if problems:
        raise UsageError("\n".join(problems))


def _problems(config: Mapping[str, Any]) -> Iterator[str]:
    agent = config.get("agent")
    kind = agent.get("kind") if isinstance(agent, Mapping) else None
    if kind not in AGENTS:
        yield f"agent.kind={kind!r} must be one of {', '.join(AGENTS)}.{suggest(str(kind), AGENTS)}"
        return
    groups = {**GROUPS, **KIND_GROUPS.get(str(kind), {}), "agent": AGENTS[str(kind)]}
    for key in config:
        if key not in groups and key not in TOP:
            yield f"unknown key {key!r}.{suggest(key, [*groups, *TOP])}"
    for key, rule in TOP.items():
        yield from _explain(key, rule, config.get(key))
    for group, rules in groups.items():
        values = config.get(group)
        if not isinstance(values, Mapping):
            yield f"{group} must be a group of keys, not {values!r}"
            continue
        for key in values:
            if key not in rules and key in GROUPS.get(group, {}):
                yield f"{group}.{key} has no effect with agent.kind={kind}: choose a {group} made for it, or none"
            elif key not in rules:
                yield f"unknown key {group}.{key}.{suggest(str(key), rules)}"
        for key, rule in rules.items():
            if key not in values:
                yield f"missing key {group}.{key}: {rule.allowed()}"
            else:
                yield from _explain(f"{group}.{key}", rule, values[key])


def unused(kind: str, keys: Iterable[str]) -> tuple[str, ...]:
    """What to say of keys that somebody has set and that an agent of this kind does not look at."""
    return tuple(
        f"{key} has no effect with agent.kind={kind}: {UNUSED[key][1]}."
        for key in keys
        if key in UNUSED and kind in UNUSED[key][0]
    )


def _explain(key: str, rule: Rule, value: Any) -> Iterator[str]:
    problem = rule.problem(value)
    if problem:
        yield f"{key}={value!r} {problem}"
