"""Torch modules and optimizers; they know nothing of reinforcement learning's loops."""

from retrograd.networks.encoders import MLP, NatureCNN, make_encoder
from retrograd.networks.heads import DuelingHead, LinearHead
from retrograd.networks.optimizers import DeepMindRMSprop, make_optimizer
from retrograd.networks.q_network import QNetwork

__all__ = [
    "MLP",
    "DeepMindRMSprop",
    "DuelingHead",
    "LinearHead",
    "NatureCNN",
    "QNetwork",
    "make_encoder",
    "make_optimizer",
]
