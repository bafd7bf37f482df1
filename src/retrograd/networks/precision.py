"""Precision and compilation of encoders, which do nearly all the work of a network.

In half precision the layers of an encoder and the hidden layers of a head after it compute in bfloat16 or float16
(autocast); weights, values, losses and the optimizer stay in float32, because a value of 10 rounded to eight bits is
off by 0.03, more than a step's difference.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from retrograd.networks.encoders import MLP, BoardCNN, Observation, PixelCNN
from retrograd.networks.products import Multiplying

log = logging.getLogger(__name__)

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
ENCODERS = (PixelCNN, BoardCNN, MLP)


def encoders(networks: Iterable[nn.Module]) -> Iterator[nn.Module]:
    """Each encoder of the networks once, shared or not."""
    seen: set[int] = set()
    for network in networks:
        for module in network.modules():
            if isinstance(module, ENCODERS) and id(module) not in seen:
                seen.add(id(module))
                yield module


def set_precision(network: nn.Module, name: str | None, device: torch.device) -> None:
    """Let convolutional encoders and the hidden layers after them compute in ``name``; float16 only where there is
    CUDA, as torch has it nowhere else at speed."""
    dtype = None if name is None or (name == "float16" and device.type != "cuda") else DTYPES[name]
    pictures = [encoder for encoder in encoders([network]) if isinstance(encoder, PixelCNN)]
    for encoder in pictures:
        encoder.compute_dtype = dtype
    for module in network.modules() if pictures else ():
        if isinstance(module, Multiplying) and module.hidden:
            module.compute_dtype = dtype


def compile_encoders(
    networks: Iterable[nn.Module], examples: Iterable[Observation], *, backend: str = "inductor"
) -> float | None:
    """Compile all encoders and run each on the examples, forward and, where it learns, backward.

    Returns the seconds that took; None where it failed, with everything as it was before and a warning that says why.
    """
    modules, begun = list(encoders(networks)), time.monotonic()
    for module in modules:
        module.compile(backend=backend)
    try:
        for example in examples:
            for module in modules:
                _try(module, example)
    except Exception as error:  # a missing compiler, an unsupported platform, a bug of torch: all mean the same here
        for module in modules:
            module._compiled_call_impl = None
        reason = str(error).strip().splitlines() or [type(error).__name__]
        log.warning("hardware.compile: goes on without, because torch.compile failed: %s", reason[0])
        return None
    return time.monotonic() - begun


def _try(module: nn.Module, example: Observation) -> None:
    params = [param for param in module.parameters() if param.requires_grad]
    with torch.no_grad():
        module(example)
    if params:
        features: Tensor = module(example)
        torch.autograd.grad(features.sum(), params)
