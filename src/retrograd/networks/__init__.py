"""Torch modules and optimizers; they know nothing of reinforcement learning's loops."""

from retrograd.networks.encoders import MLP, BoardCNN, ImpalaCNN, NatureCNN, make_encoder
from retrograd.networks.heads import DuelingHead, LinearHead
from retrograd.networks.layers import NoiseSource, NoisyLinear
from retrograd.networks.optimizers import DeepMindRMSprop, TensorFlowRMSprop, make_optimizer
from retrograd.networks.policy import ActorCritic, PolicyNetwork, RecurrentActorCritic, ValueNetwork
from retrograd.networks.q_network import ImplicitQNetwork, QNetwork

__all__ = [
    "MLP",
    "ActorCritic",
    "BoardCNN",
    "DeepMindRMSprop",
    "DuelingHead",
    "ImpalaCNN",
    "ImplicitQNetwork",
    "LinearHead",
    "NatureCNN",
    "NoiseSource",
    "NoisyLinear",
    "PolicyNetwork",
    "QNetwork",
    "RecurrentActorCritic",
    "TensorFlowRMSprop",
    "ValueNetwork",
    "make_encoder",
    "make_optimizer",
]
