"""Composing and checking configs: every default of the requirements, every mistake named."""

import numpy as np
import pytest
import yaml

from retrograd.config import SHIPPED, ConfigManager, from_saved
from retrograd.core.errors import UsageError

manager = ConfigManager(user_folder=None)

DEFAULTS = {
    "agent.network": "nature", "agent.double": False, "agent.gamma": 0.99, "agent.frame_stack": 4,
    "agent.update_frequency": 4, "agent.target_update_freq": 10000, "agent.replay_start_size": 50000,
    "agent.batch_size": 32, "agent.max_grad_norm": None,
    "preset.optimizer": "deepmind_rmsprop", "preset.lr": 0.00025, "preset.rmsprop_decay": 0.95,
    "preset.rmsprop_momentum": 0.95, "preset.rmsprop_eps": 0.01, "preset.epsilon_start": 1.0,
    "preset.epsilon_end": 0.1, "preset.epsilon_decay_frames": 1000000, "preset.reward_clip": True,
    "env.name": "pong", "env.game_id": "ALE/Pong-v5",
    "env_protocol.repeat_action_probability": 0.0, "env_protocol.frameskip": 1,
    "env_protocol.full_action_space": False, "env_protocol.noop_max": 30,
    "env_protocol.terminal_on_life_loss_train": True, "env_protocol.terminal_on_life_loss_eval": False,
    "env_protocol.eval_max_episode_frames": 18000,
    "replay.capacity": 1000000, "replay.prioritized": False, "replay.alpha": 0.6, "replay.beta_start": 0.4,
    "replay.beta_end": 1.0, "replay.beta_decay_frames": 50000000, "replay.priority_eps": 1e-6,
    "training.total_env_frames": 50000000, "training.warmup_random_steps": 50000,
    "training.log_every_steps": 1000, "training.light_eval_every_frames": 500000,
    "training.full_eval_every_frames": 2000000, "training.total_episodes": None,
    "training.max_episode_steps": None, "training.eval_every_episodes": None,
    "training.checkpoint_every_episodes": None,
    "eval.light_episodes": 10, "eval.full_episodes": 30, "eval.epsilon": 0.05, "eval.record_video": True,
    "hardware.device": "auto", "seed": 42, "output_dir": "outputs", "run_name": None,
    "wandb.enabled": False, "wandb.project": "atari-dqn", "track": "A",
}  # fmt: skip


def value_at(config, key):
    place = config.values
    for word in key.split("."):
        place = place[word]
    return place


@pytest.mark.parametrize(("key", "expected"), DEFAULTS.items())
def test_default_is_the_promised_one(key, expected):
    assert value_at(manager.compose(), key) == expected


def test_track_b_is_recognized():
    config = manager.compose(["agent=modern", "preset=modern", "replay=prioritized", "env_protocol=modern_v5_sticky"])
    assert config["track"] == "B"
    assert not config.notes
    assert (config["agent"]["network"], config["agent"]["double"], config["agent"]["max_grad_norm"]) == (
        "dueling",
        True,
        10.0,
    )
    assert (config["preset"]["optimizer"], config["preset"]["lr"], config["preset"]["adam_eps"]) == (
        "adam",
        6.25e-5,
        1.5e-4,
    )
    assert config["env_protocol"]["repeat_action_probability"] == 0.25
    assert config["env_protocol"]["eval_max_episode_frames"] == 108000


def test_a_mixture_is_said_aloud_and_recorded():
    config = manager.compose(["env_protocol=modern_v5_sticky", "preset.lr=0.001"])
    assert config["track"] == "custom"
    assert "preset.lr=0.001" in config.notes[0]


def test_other_games_and_budgets_stay_on_the_track():
    assert manager.compose(["env=ms_pacman", "seed=3", "training.warmup_random_steps=1000"])["track"] == "A"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("agent.gama=0.9", "'agent.gamma'"),
        ("agent.gamma=1.5", "from 0 to 1"),
        ("agent.gamma=high", "must be a number"),
        ("agent.batch_size=true", "whole number"),
        ("agent.batch_size=3.5", "whole number"),
        ("agent.batch_size=2000000", "must not exceed replay.capacity"),
        ("batch_size=64", "'agent.batch_size'"),
        ("agent=dqm", "'dqn'"),
        ("agnt=dqn", "'agent'"),
        ("agent.network=duelling", "'dueling'"),
        ("preset.lr=-1", "above 0"),
        ("preset.lr=nan", "above 0"),
        ("preset.epsilon_start=0.05", "must not exceed"),
        ("preset.rmsprop_momentum=0", "must equal preset.rmsprop_decay=0.95"),
        ("preset.rmsprop_decay=0.99", "preset.rmsprop_momentum=0.95 must equal"),
        ("env=pongg", "pong"),
        ("env_protocol.frameskip=4", "frameskip"),
        ("seed=1,2", "one value a key"),
        ("seed=-1", "from 0 to 2147483647"),
        ("learning", "write key=value"),
        ("agent={a: 1}", "agent"),
        ("hardware.device=gpu", "cuda"),
        ("run_name=../elsewhere", "name one folder"),
        ("~wandb", "key=value"),
        ("wandb.mode=ofline", "'offline'"),
        ("mlflow.tracking_url=x", "'mlflow.tracking_uri'"),
        ("preset.lr=" + "9" * 400, "above 0"),
        ("preset.lr=" + "9" * 5000, "preset.lr"),
        ("output_dir=~/runs", "$HOME"),
        ("wandb.tags=[a", "must be a list"),
    ],
)
def test_mistakes_are_named(override, message):
    with pytest.raises(UsageError) as caught:
        manager.compose([override])
    assert message in str(caught.value)


def test_every_key_misspelt_is_refused_with_its_right_name():
    hits = total = 0
    config = manager.compose()
    for group, values in config.values.items():
        if not hasattr(values, "items"):
            continue
        for key in values:
            for typo in (key[:-1], key + "s", key[1:] if len(key) > 4 else key + "x"):
                if typo in values:
                    continue
                total += 1
                with pytest.raises(UsageError) as caught:
                    manager.compose([f"{group}.{typo}=1"])
                hits += f"'{group}.{key}'" in str(caught.value)
    assert hits / total >= 0.95, f"{hits} of {total} typos got the right suggestion"


def test_config_file_and_overrides_in_order(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("agent: modern\npreset:\n  lr: 0.5\nseed: 7\n")
    config = manager.compose(["seed=9"], config_file=file)
    assert (config["agent"]["name"], config["preset"]["lr"], config["seed"]) == ("modern", 0.5, 9)
    file.write_text("preset:\n  learning: 1\n")
    with pytest.raises(UsageError, match=r"unknown key preset\.learning"):
        manager.compose(config_file=file)
    file.write_text("a: [1")
    with pytest.raises(UsageError, match="not YAML"):
        manager.compose(config_file=file)


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("agent/*.yaml")), ids=lambda path: path.stem)
def test_a_whole_config_is_read_as_a_file_again(path, tmp_path):
    config = manager.compose([f"agent={path.stem}", "preset.lr=0.5", "env=cartpole"])
    file = tmp_path / "whole.yaml"
    file.write_text(config.to_yaml())
    assert manager.compose(config_file=file).values == config.values


def test_a_whole_config_needs_no_file_of_its_agent_and_takes_no_other(tmp_path):
    config = manager.compose(["agent=pqn", "agent.name=mine", "eval.epsilon=0.5"])
    file = tmp_path / "whole.yaml"
    file.write_text(config.to_yaml())
    assert manager.compose(config_file=file).values == config.values
    assert manager.compose(["env=breakout"], config_file=file)["env"]["name"] == "breakout"
    assert manager.compose(["agent.name=pqn"], config_file=file)["agent"]["name"] == "pqn"
    with pytest.raises(UsageError, match="agent=dqn cannot be chosen beside"):
        manager.compose(["agent=dqn"], config_file=file)


@pytest.mark.parametrize("text", ["/home/jürgen/runs", "/home/Runs (old)/x", "it's", "a=b", "c:\\runs", "ü\\"])
def test_text_is_taken_as_it_was_typed(text):
    assert manager.compose([f"output_dir={text}"])["output_dir"] == text


def test_a_protocol_has_its_name_only_where_it_is_kept():
    config = manager.compose(["env_protocol=modern_v5_sticky"])
    assert config.protocol == "modern_v5_sticky"
    changed = config.with_values({"env_protocol.repeat_action_probability": 0.5, "env_protocol.noop_max": 0})
    assert changed.protocol == "custom (modern_v5_sticky with noop_max=0, repeat_action_probability=0.5)"
    assert config.with_values({"env_protocol.name": "mine", "env_protocol.noop_max": 0}).protocol == "mine"
    older = config.to_dict()
    del older["env_protocol"]["max_pool"], older["env_protocol"]["flicker_probability"]
    assert from_saved(older).protocol == "modern_v5_sticky"


def test_home_is_refused_where_it_is_set_and_read_where_it_was():
    config = manager.compose()
    with pytest.raises(UsageError, match="HOME"):
        config.with_values({"output_dir": "~/runs"})
    older = from_saved({**config.to_dict(), "output_dir": "~/runs"})
    assert older.with_values({"seed": 3})["output_dir"] == "~/runs"


def test_numbers_of_numpy_are_numbers():
    config = manager.compose().with_values({"preset.lr": np.float64(0.5), "seed": np.int64(3)})
    assert (config["preset"]["lr"], config["seed"]) == (0.5, 3)
    assert "lr: 0.5" in config.to_yaml()


def test_saved_config_is_read_back_equal():
    config = manager.compose(["preset.lr=1e-5", "replay.capacity=200000"])
    assert from_saved(yaml.safe_load(config.to_yaml())) == config


def test_a_run_older_than_a_choice_goes_on_as_it_was():
    """Null would choose oneDNN's products on some processors: other sums than the run had so far."""
    saved = yaml.safe_load(manager.compose().to_yaml())
    del saved["hardware"]["onednn_linear"]
    assert from_saved(saved)["hardware"]["onednn_linear"] is False
    saved["hardware"]["onednn_linear"] = None
    assert from_saved(saved)["hardware"]["onednn_linear"] is None


def test_user_folder_is_searched_first(tmp_path):
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "pong.yaml").write_text("name: pong\ngame_id: ALE/Breakout-v5\n")
    (tmp_path / "preset").mkdir()
    (tmp_path / "preset" / "mine.yaml").write_text("defaults: [paper]\nlr: 0.125\n")
    config = ConfigManager(tmp_path).compose(["preset=mine"])
    assert config["env"]["game_id"] == "ALE/Breakout-v5"
    assert (config["preset"]["lr"], config["preset"]["rmsprop_eps"]) == (0.125, 0.01)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"defaults: [modern]\nlr: 1.0e-4\n  adam_eps: 3\n", "mapping values are not allowed"),
        (b"defaults: [moden]\nlr: 1.0e-4\n", "moden"),
        (b"lr: 1 # z\xfcgig\n", "utf-8"),
    ],
)
def test_a_slip_in_a_file_of_the_user_is_named(tmp_path, content, message):
    (tmp_path / "preset").mkdir()
    (tmp_path / "preset" / "mine.yaml").write_bytes(content)
    with pytest.raises(UsageError) as caught:
        ConfigManager(tmp_path).compose(["preset=mine"])
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_link_that_leads_nowhere_harms_nobody(tmp_path):
    (tmp_path / "preset").mkdir()
    (tmp_path / "preset" / ".#mine.yaml").symlink_to("somebody@host")  # as an editor leaves it
    (tmp_path / "preset" / "gone.yaml").symlink_to("nowhere.yaml")
    assert ConfigManager(tmp_path).compose()["agent"]["name"] == "dqn"
    with pytest.raises(UsageError, match="preset/gone"):
        ConfigManager(tmp_path).compose(["preset=gone"])


def test_config_is_frozen():
    config = manager.compose()
    with pytest.raises(TypeError):
        config["agent"]["gamma"] = 0.5


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("agent/*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_agent_composes(path):
    assert manager.compose([f"agent={path.stem}"])["agent"]["name"] == path.stem
