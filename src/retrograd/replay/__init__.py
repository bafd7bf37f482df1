"""Replay: storage × sampler × reader. Importing this room does not import torch."""

from retrograd.replay.buffer import Reader, Replay, ReplayBuffer, Sampler
from retrograd.replay.compressed import CompressedStorage
from retrograd.replay.episodes import EpisodeBuffer, StoredEpisode
from retrograd.replay.hindsight import Hindsight
from retrograd.replay.memory import bytes_needed, check_memory
from retrograd.replay.n_step import NStep
from retrograd.replay.prioritized import Prioritized
from retrograd.replay.recurrent_rollout import RecurrentRollout, RecurrentRolloutBuffer, RolloutSequences
from retrograd.replay.rollout import RolloutBuffer
from retrograd.replay.saving import ReplaySaver
from retrograd.replay.sequences import Windows
from retrograd.replay.storage import RawStorage
from retrograd.replay.sum_tree import SumTree
from retrograd.replay.uniform import Uniform

__all__ = [
    "CompressedStorage",
    "EpisodeBuffer",
    "Hindsight",
    "NStep",
    "Prioritized",
    "RawStorage",
    "Reader",
    "RecurrentRollout",
    "RecurrentRolloutBuffer",
    "Replay",
    "ReplayBuffer",
    "ReplaySaver",
    "RolloutBuffer",
    "RolloutSequences",
    "Sampler",
    "StoredEpisode",
    "SumTree",
    "Uniform",
    "Windows",
    "bytes_needed",
    "check_memory",
]
