"""How an agent finds out: ε-greedy and, as they come, intrinsic bonuses."""

from retrograd.exploration.epsilon_greedy import EpsilonGreedy

__all__ = ["EpsilonGreedy"]
