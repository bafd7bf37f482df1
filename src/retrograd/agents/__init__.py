"""One algorithm per file; an agent never sees an environment, a buffer or a loop."""

from retrograd.agents.baselines import ConstantAgent, RandomAgent
from retrograd.agents.policy import PolicyAgent
from retrograd.agents.value import ValueAgent
from retrograd.core.protocols import Agent as BaseAgent

__all__ = ["BaseAgent", "ConstantAgent", "PolicyAgent", "RandomAgent", "ValueAgent"]
