"""Order, time and disk: playing, the loops, evaluating, checkpoints."""
