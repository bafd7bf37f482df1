"""The switches of the hardware group: what this machine can do, and how a learner is fitted to it."""

from __future__ import annotations

import ctypes
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retrograd.config import Config
from retrograd.core.errors import UsageError
from retrograd.core.types import ArraySpec, EnvSpec

if TYPE_CHECKING:
    import torch
    from torch import nn

    from retrograd.build.builder import Builder
    from retrograd.core.protocols import Agent

log = logging.getLogger(__name__)

# glibc's mallopt: names of malloc.h, with the largest values it takes for them
TRIM_THRESHOLD, MMAP_THRESHOLD = (-1, 2**31 - 1), (-3, 2**30)
OLDER_MMAP_THRESHOLD = (-3, 32 * 2**20)  # before glibc 2.35 no more is possible

CPUINFO = Path("/proc/cpuinfo")
# what CUDA graphs cannot record in an update: numbers drawn on the host, statistics that a pass changes
RANDOM_UPDATES = {"noisy": (True,), "distributional": ("iqn",), "spectral_norm": (True,)}


def check_switches(config: Config, device: torch.device) -> None:
    """Refuse what this device or this agent cannot do, before anything is made."""
    hardware, agent = config["hardware"], config["agent"]
    for key in ("cuda_graph", "expandable_segments"):
        if hardware[key] and device.type != "cuda":
            raise UsageError(f"hardware.{key}=true needs CUDA, and this run learns on {device}; use false")
    if hardware["autocast"] == "float16" and device.type != "cuda":
        raise UsageError(
            f"hardware.autocast=float16 needs CUDA, and this run learns on {device}; use null, or bfloat16 where the "
            "processor has instructions for it"
        )
    lowered = precision(config, device)
    if agent["kind"] == "a3c" and (lowered or hardware["compile"]):
        key = "autocast" if lowered else "compile"
        raise UsageError(f"hardware.{key} has no effect with agent.kind=a3c, whose workers learn on their own networks")
    if agent["kind"] in ("a3c", "impala") and hardware["workers"]:
        raise UsageError(f"hardware.workers=true: agent={agent['name']} plays in worker processes already; use false")
    if hardware["cuda_graph"]:
        _check_graph(agent, hardware)
    if lowered == "bfloat16" and device.type == "cpu" and has_bfloat16() is False:
        log.warning(
            "hardware.autocast=bfloat16: this processor has no instructions for it and will be many times slower"
        )


def has_bfloat16(cpuinfo: Path = CPUINFO) -> bool | None:
    """Whether the processor computes in bfloat16 by itself; None where nobody can tell."""
    flags = set(re.findall(r"\w+", _told(cpuinfo, "flags|Features")))
    return bool(flags & {"avx512_bf16", "amx_bf16", "bf16"}) if flags else None


def precision(config: Config, device: torch.device) -> str | None:
    """``hardware.autocast``, with ``native`` replaced by what it means here: bfloat16 or, as null, float32."""
    chosen: str | None = config["hardware"]["autocast"]
    if chosen != "native":
        return chosen
    able = device.type == "cpu" and has_bfloat16() and config["agent"]["kind"] != "a3c"
    return "bfloat16" if able else None


def with_precision(config: Config, device: torch.device) -> Config:
    """The same config with the precision by its name, for a run that may go on elsewhere."""
    if config["hardware"]["autocast"] != "native":
        return config
    return config.with_values({"hardware.autocast": precision(config, device)})


def onednn_is_faster(cpuinfo: Path = CPUINFO) -> bool:
    """Where it was measured: processors of AMD with AVX-512. The same on every start, or runs would not repeat."""
    import torch

    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return torch.backends.cpu.get_cpu_capability() == "AVX512" and "AuthenticAMD" in _told(cpuinfo, "vendor_id")


def _told(cpuinfo: Path, names: str) -> str:
    """What the system says of its processors under these names; nothing where it does not."""
    try:
        text = cpuinfo.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
    return " ".join(re.findall(rf"^(?:{names})\s*:(.*)$", text, re.MULTILINE))


def _check_graph(agent: Mapping[str, Any], hardware: Mapping[str, Any]) -> None:
    asked = "hardware.cuda_graph=true"
    if agent["kind"] != "value":
        raise UsageError(f"{asked} records updates from a replay: agent.kind={agent['kind']} must be value")
    for key, values in RANDOM_UPDATES.items():
        if agent[key] in values:
            raise UsageError(
                f"{asked} repeats one recorded update, and agent.{key}={agent[key]} makes each another one"
            )
    if hardware["autocast"] == "float16":
        raise UsageError(f"{asked} cannot record the changing scale of hardware.autocast=float16; use bfloat16")


def set_allocators(config: Config) -> None:
    """Tell the allocators what is kept; nothing they do changes a number."""
    hardware = config["hardware"]
    if hardware["keep_big_blocks"] is not False:
        try:
            keep_big_blocks()
        except UsageError:
            if hardware["keep_big_blocks"]:  # null: only where it is possible
                raise
    if hardware["expandable_segments"]:
        add_to_allocator("expandable_segments:True")


def add_to_allocator(setting: str) -> None:
    """Put one more setting beside the user's own; read when CUDA is used for the first time.

    Torch has renamed the variable and, where both are set, forgets the older one: so it goes where something is.
    """
    old, new = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
    name = old if os.environ.get(old) and not os.environ.get(new) else new
    present = os.environ.get(name, "")
    if setting.split(":")[0] not in present:
        os.environ[name] = f"{present},{setting}" if present else setting


def keep_big_blocks() -> None:
    """Let glibc keep freed memory for the next batch instead of giving it back, and torch ask for huge pages.

    Otherwise each update gets its large arrays from the system anew, and touches every page of them for the first time.
    """
    try:
        libc = ctypes.CDLL(None)
        mallopt = libc.mallopt
        libc.gnu_get_libc_version  # noqa: B018 - others have a mallopt that does nothing
    except (OSError, AttributeError, TypeError):
        raise UsageError("hardware.keep_big_blocks=true needs glibc's malloc, which this system has not") from None
    kept = mallopt(*TRIM_THRESHOLD) and (mallopt(*MMAP_THRESHOLD) or mallopt(*OLDER_MMAP_THRESHOLD))
    if not kept:
        raise UsageError("hardware.keep_big_blocks=true: this system's malloc refuses its settings")
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # read at torch's first large array


def place(builder: Builder, network: nn.Module) -> nn.Module:
    """The network on its device, in the precision and with the products that the config asks for."""
    from retrograd.networks.precision import set_precision

    device = builder.device()
    network.to(device)
    set_precision(network, precision(builder.config, device), device)
    return choose_products(builder, network)


def choose_products(builder: Builder, network: nn.Module) -> nn.Module:
    """``hardware.onednn_linear``: who multiplies with the large weights of the network."""
    from retrograd.networks.products import use_onednn

    chosen = builder.config["hardware"]["onednn_linear"]
    use_onednn(network, onednn_is_faster() if chosen is None else chosen)
    return network


def make_scaler(builder: Builder) -> torch.amp.GradScaler | None:
    """For float16 alone: bfloat16 has the range of float32."""
    import torch

    device = builder.device()
    wanted = builder.config["hardware"]["autocast"] == "float16" and device.type == "cuda"
    return torch.amp.GradScaler(device.type) if wanted else None


def compile_agent(builder: Builder, agent: Agent, spec: EnvSpec) -> None:
    """``hardware.compile``: the agent's encoders, run once on batches as large as those it will meet."""
    if not builder.config["hardware"]["compile"]:
        return
    from torch import nn

    from retrograd.networks.precision import compile_encoders

    networks = [part for part in agent.parts.values() if isinstance(part, nn.Module)]
    seconds = compile_encoders(networks, _examples(builder, spec))
    if seconds is not None:
        print(f"retrograd: hardware.compile: compiled in {seconds:.0f} seconds", file=sys.stderr)


def _examples(builder: Builder, spec: EnvSpec) -> Iterator[Any]:
    """Observations of every size and layout that the encoders will meet: each is compiled for itself."""
    config = builder.config
    for rows in _batches(config):
        yield _zeros(builder, spec.obs, rows)
    if config["agent"]["kind"] == "value" and isinstance(spec.obs, ArraySpec) and spec.frame_stack is not None:
        # a replay hands out parts of longer runs of frames: a state and its successor, overlapping or end to end
        stack, ahead, rows = spec.frame_stack, config["agent"]["n_step"], config["agent"]["batch_size"]
        for more in {min(ahead, stack), stack}:
            frames = ArraySpec((stack + more, *spec.obs.shape[1:]), spec.obs.dtype)
            window = _zeros(builder, frames, rows)
            yield window[:, :stack]
            yield window[:, more:]


def _batches(config: Config) -> Iterator[int]:
    """Rows that are acted on, and rows that are learned from at once."""
    agent, num_envs = config["agent"], config["training"]["num_envs"]
    yield num_envs
    if "batch_size" in agent:
        yield agent["batch_size"]
    elif "rollout_steps" in agent:
        rollout = agent["rollout_steps"] * num_envs * agent.get("rollouts_per_update", 1)
        yield -(-rollout // agent.get("minibatches", 1))


def _zeros(builder: Builder, obs: ArraySpec | dict[str, ArraySpec], rows: int) -> Any:
    import torch

    def zeros(array: ArraySpec) -> torch.Tensor:
        kind = getattr(torch, array.dtype.name)
        return torch.zeros(rows, *array.shape, dtype=kind, device=builder.device())

    return {key: zeros(one) for key, one in obs.items()} if isinstance(obs, dict) else zeros(obs)
