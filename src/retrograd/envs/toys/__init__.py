"""Small tasks with known answers, for tests of learners and as first examples."""

from __future__ import annotations

_ENTRY_POINTS = {
    "retrograd/Catch-v0": "retrograd.envs.toys.catch:Catch",
    "retrograd/CatchScreen-v0": "retrograd.envs.toys.catch:CatchScreen",
    "retrograd/Counter-v0": "retrograd.envs.toys.chains:Counter",
    "retrograd/Chain-v0": "retrograd.envs.toys.chains:Chain",
    "retrograd/DeepSea-v0": "retrograd.envs.toys.deep_sea:DeepSea",
    "retrograd/MemoryChain-v0": "retrograd.envs.toys.memory:MemoryChain",
    "retrograd/CartPoleNoVel-v0": "retrograd.envs.toys.memory:CartPoleNoVel",
    "retrograd/BitFlip-v0": "retrograd.envs.toys.bit_flip:BitFlip",
}


def register_toys() -> None:
    """Make the tasks known to Gymnasium; again and again does no harm."""
    import gymnasium

    for env_id, entry_point in _ENTRY_POINTS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point=entry_point)
