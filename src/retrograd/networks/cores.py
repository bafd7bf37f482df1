"""Memory between an encoder and its heads: LSTM and GRU, with the state as named arrays, rows in front."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from retrograd.core.errors import UsageError, suggest

State = dict[str, Tensor]  # [N, hidden_size] by name
CELLS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


class RecurrentCore(nn.Module):
    """Sequences [L, S, width] and the states before them → [L, S, hidden_size] and the states after.

    Orthogonal weights and zero biases, as Huang et al. 2022 list for PPO with an LSTM.
    """

    def __init__(self, width: int, hidden_size: int, *, cell: str) -> None:
        super().__init__()
        if cell not in CELLS:
            raise UsageError(f"cell is {cell!r}, allowed are {', '.join(CELLS)}.{suggest(cell, CELLS)}")
        if hidden_size < 1:
            raise UsageError(f"hidden_size is {hidden_size}: a memory needs at least 1 unit")
        self.hidden_size = hidden_size
        self.names = ("h", "c") if cell == "lstm" else ("h",)
        self.cell = CELLS[cell](width, hidden_size)
        for name, parameter in self.cell.named_parameters():
            if name.startswith("weight"):
                nn.init.orthogonal_(parameter, 1.0)
            else:
                nn.init.zeros_(parameter)

    def initial_state(self, rows: int) -> State:
        """Zeros, where a game begins."""
        device = next(self.cell.parameters()).device
        return {name: torch.zeros(rows, self.hidden_size, device=device) for name in self.names}

    def forward(self, sequences: Tensor, state: State) -> tuple[Tensor, State]:
        before = tuple(state[name].unsqueeze(0) for name in self.names)  # each [1, S, hidden_size]
        output, after = self.cell(sequences, before if len(before) > 1 else before[0])
        ends = after if isinstance(after, tuple) else (after,)
        return output, {name: end.squeeze(0) for name, end in zip(self.names, ends, strict=True)}
