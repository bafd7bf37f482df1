"""Makes the published figures that ship in the package from the full collection of them.

    python benchmarks/make_reference.py --source DIR [--target src/retrograd/reference]

The collection names an algorithm and a code base in one string and a protocol in many spellings;
here they become three short columns, and the grid of frames is thinned until the package stays small.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Iterator
from pathlib import Path

Row = dict[str, str]

# name in the collection -> (algorithm, source); the sources are explained in sources.csv
CURVES = {
    "DQN (Dopamine TF, Nature CNN, RMSProp)": ("DQN", "dopamine_tf"),
    "C51 (Dopamine TF)": ("C51", "dopamine_tf"),
    "Rainbow (Dopamine TF)": ("Rainbow", "dopamine_tf"),
    "IQN (Dopamine TF)": ("IQN", "dopamine_tf"),
    "QR-DQN (Dopamine JAX 2020)": ("QR-DQN", "dopamine_jax20"),
    "DQN (Dopamine JAX 2021, Adam+MSE)": ("DQN", "dopamine_jax21"),
    "DQN (Dopamine JAX 2024, CNN)": ("DQN", "dopamine_jax24"),
    "Rainbow (Dopamine JAX 2024, CNN)": ("Rainbow", "dopamine_jax24"),
    "Rainbow (Dopamine JAX 2024, IMPALA)": ("Rainbow IMPALA", "dopamine_jax24"),
    "DreamerV3 (200M, danijar repo)": ("DreamerV3", "dreamer"),
    "DreamerV2 (200M, danijar repo)": ("DreamerV2", "dreamer"),
    "PPO (DreamerV3 paper, Acme, fixed hp)": ("PPO", "dreamer_acme"),
    "MuZero (200M curve, DreamerV3 repo)": ("MuZero", "dreamer_acme"),
    "BTR (ICLR2025 submission data)": ("BTR", "btr"),
    "DQN (nnabla-rl)": ("DQN", "nnabla"),
    "Double DQN (nnabla-rl)": ("Double DQN", "nnabla"),
    "C51 (nnabla-rl)": ("C51", "nnabla"),
    "QR-DQN (nnabla-rl)": ("QR-DQN", "nnabla"),
    "IQN (nnabla-rl)": ("IQN", "nnabla"),
    "Rainbow (nnabla-rl)": ("Rainbow", "nnabla"),
    "Munchausen-DQN (nnabla-rl)": ("Munchausen-DQN", "nnabla"),
    "A2C (nnabla-rl)": ("A2C", "nnabla"),
    "PPO (nnabla-rl)": ("PPO", "nnabla"),
    "ppo2 (openai/baselines 7bfbcf1)": ("PPO", "baselines"),
    "a2c (openai/baselines 7bfbcf1)": ("A2C", "baselines"),
    "acer (openai/baselines 7bfbcf1)": ("ACER", "baselines"),
    "acktr (openai/baselines 7bfbcf1)": ("ACKTR", "baselines"),
    "deepq (openai/baselines 7bfbcf1)": ("DQN", "baselines"),
}
CURVE_PROTOCOLS = {
    "dopamine_tf": "sticky_train",
    "dopamine_jax20": "sticky_train",
    "dopamine_jax21": "sticky_train",
    "dopamine_jax24": "sticky_train",
    "btr": "sticky_eval",
    "nnabla": "no_sticky_eval",
    "baselines": "no_sticky_train",
}
MIXED_PROTOCOLS = {  # one repository, two kinds of figure
    "DreamerV3": "sticky_train",
    "PPO": "sticky_train",
    "DreamerV2": "sticky_eval",
    "MuZero": "sticky_eval",
}
CURVE_FILES = (
    "curves_dopamine_10games.csv",
    "curves_dreamer_muzero_ppo_btr_10games.csv",
    "curves_nnabla_nosticky.csv",
    "curves_openai_baselines_10Msteps.csv",
)
CURVE_GRID = frozenset(
    [0.4, 1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 18, 20, 25, 30, 35, 39.6, 40, 50, *range(60, 201, 20)]
)
CHECKPOINT_GRID = frozenset([1, 2, 5, 10, 20, 50, 100, 200])
CHECKPOINTS = ("DQN (Dopamine TF", "Rainbow (Dopamine TF", "DreamerV3", "PPO (DreamerV3", "DQN (nnabla")

# (name in the collection, protocol there, start of its source) -> (algorithm, protocol, source)
FINAL_SCORES = {
    ("DQN", "noop", "c51 paper"): ("DQN", "noop", "wang2016"),
    ("DQN", "noop", "dqn paper"): ("DQN", "noop", "mnih2015"),
    ("DDQN", "noop", "ddqn paper"): ("Double DQN", "noop", "hasselt2015"),
    ("DDQN", "noop", "danijar/dreamerv2"): ("Double DQN", "noop", "wang2016"),
    ("DDQN", "noop", "C51/Dueling"): ("Double DQN", "noop", "wang2016"),
    ("DuDQN", "noop", "dudqn paper"): ("Dueling Double DQN", "noop", "wang2016"),
    ("PDD DQN", "noop", "dudqn paper"): ("Prioritized Dueling Double DQN", "noop", "wang2016"),
    ("Prioritized DDQN (Rainbow paper table)", "noop", "Rainbow"): ("Prioritized Double DQN", "noop", "hessel2017"),
    ("Rainbow", "noop", "rainbow paper"): ("Rainbow", "noop", "hessel2017"),
    ("NoisyNet DQN", "noop", "noisynet paper"): ("NoisyNet DQN", "noop", "fortunato2017"),
    ("C51", "noop", "c51 paper"): ("C51", "noop", "bellemare2017"),
    ("QR-DQN-1", "noop", "qr_dqn paper"): ("QR-DQN", "noop", "dabney2017"),
    ("IQN", "noop", "iqn paper"): ("IQN", "noop", "dabney2018"),
    ("A3C FF", "human_starts", "a3c paper"): ("A3C", "human_starts", "mnih2016"),
    ("A3C LSTM", "human_starts", "a3c paper"): ("A3C LSTM", "human_starts", "mnih2016"),
    ("A2C", "train_last100ep", "ppo paper"): ("A2C", "no_sticky_train", "schulman2017"),
    ("PPO", "train_last100ep", "ppo paper"): ("PPO", "no_sticky_train", "schulman2017"),
    ("IMPALA (deep)", "noop", "impala paper"): ("IMPALA", "noop", "espeholt2018"),
    ("Ape-X DQN", "noop", "ape_x"): ("Ape-X", "noop", "horgan2018"),
    ("R2D2", "noop", "R2D2 ICLR2019"): ("R2D2", "noop", "kapturowski2019"),
    ("MuZero", "noop", "MuZero arXiv:1911"): ("MuZero 20B", "noop", "schrittwieser2019"),
    ("PPO CleanRL envpool_xla_jax", "train, no sticky, episodic_life", ""): ("PPO", "no_sticky_train", "cleanrl"),
    ("DQN CleanRL", "train, no sticky, 10M steps", ""): ("DQN", "no_sticky_train", "cleanrl"),
    ("C51 CleanRL", "train, no sticky, 10M steps", ""): ("C51", "no_sticky_train", "cleanrl"),
    ("Rainbow CleanRL", "train, no sticky, 10M steps", ""): ("Rainbow", "no_sticky_train", "cleanrl"),
    ("Cleanba PPO (Sync), 1 A100, 10 CPU", "train, envpool, sticky/Machado", ""): ("PPO", "sticky_train", "cleanba"),
    ("Cleanba IMPALA, 1 A100, 10 CPU", "train, envpool, sticky/Machado", ""): ("IMPALA", "sticky_train", "cleanba"),
    ("DQN (PFRL)", "noop_best_checkpoint", ""): ("DQN", "noop_best_checkpoint", "pfrl"),
    ("IQN (PFRL)", "noop_best_checkpoint", ""): ("IQN", "noop_best_checkpoint", "pfrl"),
    ("Rainbow (PFRL)", "noop_best_checkpoint", ""): ("Rainbow", "noop_best_checkpoint", "pfrl"),
    ("A3C (PFRL)", "noop_best_checkpoint", ""): ("A3C", "noop_best_checkpoint", "pfrl"),
    ("DQN SB3-zoo", "eval (std over episodes, 1 run), no sticky", ""): ("DQN", "no_sticky_eval", "sb3_zoo"),
    ("QRDQN SB3-zoo", "eval (std over episodes, 1 run), no sticky", ""): ("QR-DQN", "no_sticky_eval", "sb3_zoo"),
    ("A2C SB3-zoo", "eval (std over episodes, 1 run), no sticky", ""): ("A2C", "no_sticky_eval", "sb3_zoo"),
    ("PPO SB3-zoo", "eval (std over episodes, 1 run), no sticky", ""): ("PPO", "no_sticky_eval", "sb3_zoo"),
}
IMPLEMENTATION_PROTOCOLS = {"sticky_train", "sticky_eval", "sticky_eval100ep", "nosticky_eval"}

NNABLA_TWO_SEED_GAMES = {"Asterix", "Breakout", "Pong", "Qbert", "Seaquest"}


def read(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(path: Path, columns: list[str], rows: Iterable[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def frames(millions: str) -> str:
    """Whole emulator frames; empty where the source gives a range or nothing."""
    try:
        return str(round(float(millions) * 1_000_000))
    except ValueError:
        return ""


def short(number: str) -> str:
    """Four significant digits, and never fewer than the whole number: what a plot can show."""
    if not number:
        return ""
    value = float(number)
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def seeds(algorithm: str, row: Row) -> str:
    """The collection's notes and its table differ by one seed for one DQN series: the smaller number is given."""
    if algorithm == "DQN (nnabla-rl)" and row["game"] in NNABLA_TWO_SEED_GAMES:
        return "3" if float(row["frames_M"]) <= 1 else "2"
    return row["n_seeds"]


def protocol_of(algorithm: str, source: str) -> str:
    return CURVE_PROTOCOLS.get(source) or MIXED_PROTOCOLS[algorithm]


def curve_rows(rows: Iterable[Row], std: str, grid: frozenset[float]) -> Iterator[Row]:
    for row in rows:
        if row["algorithm"] not in CURVES or float(row["frames_M"]) not in grid:
            continue
        algorithm, source = CURVES[row["algorithm"]]
        yield {
            "algorithm": algorithm,
            "game": row["game"],
            "frames": frames(row["frames_M"]),
            "mean_return": short(row["mean_return"]),
            "std": short(row[std]),
            "n_seeds": seeds(row["algorithm"], row),
            "protocol": protocol_of(algorithm, source),
            "source": source,
        }


def final_target(row: Row) -> tuple[str, str, str] | None:
    for (algorithm, protocol, source), target in FINAL_SCORES.items():
        if (row["algorithm"], row["protocol"]) == (algorithm, protocol) and row["source"].startswith(source):
            return target
    if row["protocol"] in IMPLEMENTATION_PROTOCOLS and row["algorithm"] in CURVES:
        algorithm, source = CURVES[row["algorithm"]]
        return algorithm, protocol_of(algorithm, source), source
    return None


def final_rows(rows: Iterable[Row]) -> Iterator[Row]:
    for row in rows:
        target = final_target(row)
        if target is None:
            continue
        algorithm, protocol, source = target
        # the Nature paper counts its 50M decisions as frames; with an action repeat of four they are 200M
        millions = "200" if source == "mnih2015" else row["frames_M"]
        yield {
            "algorithm": algorithm,
            "game": row["game"],
            "frames": frames(millions),
            "score": row["score"],
            "std": short(row["std"]),
            "protocol": protocol,
            "source": source,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True, help="folder of the full collection")
    parser.add_argument("--target", type=Path, default=Path("src/retrograd/reference"))
    options = parser.parse_args()
    source, target = options.source, options.target

    columns = ["algorithm", "game", "frames", "mean_return", "std", "n_seeds", "protocol", "source"]
    curves = [row for name in CURVE_FILES for row in curve_rows(read(source / name), "std", CURVE_GRID)]
    write(target / "curves.csv", columns, curves)

    drawn = {(row["algorithm"], row["source"], row["game"]) for row in curves}
    few = (row for row in read(source / "checkpoints_all_games.csv") if row["algorithm"].startswith(CHECKPOINTS))
    sparse = curve_rows(few, "std_across_seeds", CHECKPOINT_GRID)
    rest = [row for row in sparse if (row["algorithm"], row["source"], row["game"]) not in drawn]
    write(target / "checkpoints.csv", columns, rest)

    finals = [
        row
        for name in ("final_scores_papers.csv", "final_scores_implementations.csv")
        for row in final_rows(read(source / name))
    ]
    columns = ["algorithm", "game", "frames", "score", "std", "protocol", "source"]
    write(target / "final_scores.csv", columns, sorted(finals, key=lambda row: (row["game"], row["protocol"])))
    baselines = read(source / "human_random_57.csv")
    write(target / "human_random_57.csv", ["game", "random", "human", "human_world_record"], baselines)
    for path in sorted(target.glob("*.csv")):
        print(f"{path.name:24} {path.stat().st_size / 1000:7.1f} kB")


if __name__ == "__main__":
    main()
