"""The switches of the hardware group: meaning on a processor, or a clear refusal."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch

from retrograd import cli
from retrograd.build import Builder
from retrograd.build import hardware as switches
from retrograd.build.builder import use_device
from retrograd.build.hardware import check_switches, compile_agent
from retrograd.build.value import make_replay
from retrograd.config import ConfigManager
from retrograd.core.errors import UsageError
from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec, Step
from retrograd.networks.encoders import NatureCNN
from retrograd.networks.precision import compile_encoders, encoders, set_precision
from retrograd.networks.q_network import make_q_network
from retrograd.replay.staging import Staging

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
SCREEN = ArraySpec((4, 84, 84), np.dtype(np.uint8))
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def compose(*words: str):
    return ConfigManager(None).compose(list(words))


def screens(rows: int = 3) -> torch.Tensor:
    rng = np.random.default_rng(0)
    return torch.from_numpy(rng.integers(256, size=(rows, 4, 84, 84), dtype=np.uint8))


@pytest.mark.parametrize(
    ("words", "device", "message"),
    [
        (["hardware.cuda_graph=true"], CPU, r"hardware.cuda_graph=true needs CUDA"),
        (["hardware.expandable_segments=true"], CPU, r"hardware.expandable_segments=true needs CUDA"),
        (["hardware.autocast=float16"], CPU, r"hardware.autocast=float16 needs CUDA"),
        (["agent=a3c", "hardware.autocast=bfloat16"], CPU, "no effect with agent.kind=a3c"),
        (["agent=a3c", "hardware.workers=true"], CPU, "agent=a3c plays in worker processes already"),
        (["agent=impala", "hardware.workers=true"], CPU, "agent=impala plays in worker processes already"),
        (["agent=a3c", "hardware.compile=true"], CPU, "hardware.compile has no effect with agent.kind=a3c"),
        (["agent=ppo", "hardware.cuda_graph=true"], CUDA, "agent.kind=ppo must be value"),
        (["agent=rainbow", "hardware.cuda_graph=true"], CUDA, "agent.noisy=True makes each another one"),
        (["agent=iqn", "hardware.cuda_graph=true"], CUDA, "agent.distributional=iqn makes each another one"),
        (["hardware.cuda_graph=true", "hardware.autocast=float16"], CUDA, "use bfloat16"),
    ],
)
def test_what_cannot_be_done_is_refused(words, device, message):
    with pytest.raises(UsageError, match=message):
        check_switches(compose(*words), device)


@pytest.mark.parametrize(
    "words", [["hardware.autocast=bfloat16"], ["hardware.compile=true"], ["hardware.keep_big_blocks=true"]]
)
def test_what_a_processor_can_do_is_allowed(words):
    check_switches(compose(*words), CPU)


@pytest.mark.parametrize(
    ("text", "fast"),
    [
        ("flags\t\t: fpu avx2 fma\n", False),
        ("flags\t\t: fpu avx512f avx512_bf16\n", True),
        ("Features\t: fp asimd bf16\n", True),
        ("nothing known\n", None),
    ],
)
def test_processors_that_would_crawl_in_bfloat16_are_known(text, fast, tmp_path, monkeypatch, caplog):
    file = tmp_path / "cpuinfo"
    file.write_text(text)
    assert switches.has_bfloat16(file) is fast
    monkeypatch.setattr(switches, "has_bfloat16", lambda: fast)
    check_switches(compose("hardware.autocast=bfloat16"), CPU)
    assert ("many times slower" in caplog.text) is (fast is False)


def test_the_command_line_refuses_before_a_folder_is_made(tmp_path, capsys):
    words = ["env=cartpole", "hardware.device=cpu", "hardware.cuda_graph=true", f"output_dir={tmp_path / 'runs'}"]
    assert cli.main(["train", *words, "replay.capacity=1000", "training.warmup_random_steps=10"]) == 2
    assert "needs CUDA" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_encoders_in_bfloat16_give_float32_features_that_are_a_little_off():
    torch.manual_seed(0)
    encoder = NatureCNN(SCREEN)
    exact = encoder(screens())
    set_precision(encoder, "bfloat16", CPU)
    rounded = encoder(screens())
    assert rounded.dtype == torch.float32
    assert not torch.equal(rounded, exact)
    torch.testing.assert_close(rounded, exact, rtol=0.1, atol=0.02)
    rounded.sum().backward()
    assert all(param.grad is not None and param.grad.dtype == torch.float32 for param in encoder.parameters())
    set_precision(encoder, None, CPU)
    assert torch.equal(encoder(screens()), exact)


def test_an_agent_learns_in_bfloat16_and_its_target_is_rounded_alike():
    words = ["env=pong", "hardware.device=cpu", "hardware.autocast=bfloat16", "training.num_envs=1"]
    builder = Builder(compose(*words))
    envs = builder.environments()
    envs.close()
    agent = builder.agent(envs.spec)
    dtypes = [encoder.compute_dtype for encoder in encoders([agent.online, agent.target])]
    assert dtypes == [torch.bfloat16, torch.bfloat16]
    assert "scaler" not in agent.parts  # bfloat16 has the range of float32


def test_float16_where_there_is_no_cuda_plays_in_float32():
    """A run from a GPU can be judged on a processor."""
    encoder = NatureCNN(SCREEN)
    set_precision(encoder, "float16", CPU)
    assert encoder.compute_dtype is None
    set_precision(encoder, "float16", CUDA)
    assert encoder.compute_dtype == torch.float16


def test_compiled_encoders_compute_the_same_under_the_same_names():
    torch.manual_seed(0)
    network = make_q_network(SCREEN, 4, network="nature", channels_last=True)
    names, expected = list(network.state_dict()), network(screens())
    seconds = compile_encoders([network], [screens()], backend="eager")
    assert seconds is not None
    assert seconds > 0
    assert network.encoder._compiled_call_impl is not None
    assert list(network.state_dict()) == names
    torch.testing.assert_close(network(screens()), expected)


@pytest.mark.parametrize("n_step", [1, 3, 5])
def test_what_a_replay_hands_out_is_compiled_for_before_the_run(n_step, monkeypatch):
    """Else the first update would compile again, where a failure ends the run."""
    words = ["env=pong", "hardware.device=cpu", "hardware.compile=true", "training.num_envs=1"]
    small = ["replay.capacity=200", "training.warmup_random_steps=10", "agent.encoder=small"]
    builder = Builder(compose(*words, *small, f"agent.n_step={n_step}"))
    spec = EnvSpec("screen", SCREEN, DiscreteActions(3), frame_stack=4, frames_per_step=4)
    agent = builder.agent(spec)
    graphs: list[int] = []

    def counting(module, _inputs):
        graphs.append(1)
        return module.forward

    torch._dynamo.reset()
    monkeypatch.setattr("retrograd.networks.precision.compile_encoders", partial(compile_encoders, backend=counting))
    compile_agent(builder, agent, spec)
    known = len(graphs)
    replay, obs, never = make_replay(builder, spec), np.zeros((1, *SCREEN.shape), np.uint8), np.zeros(1, bool)
    for games in ([never] * 40, [never] * 8 + [~never]):  # windows of one length, then of several
        for ends in games:
            replay.add(Step(obs, np.zeros(1, np.int64), np.zeros(1, np.float32), ends, never, ends, obs))
        for _ in range(3):
            agent.update(replay.sample(32, step=60), step=60)
    assert len(graphs) == known > 0


def test_where_compiling_fails_the_run_goes_on_and_says_why(caplog, capsys):
    builder = Builder(compose("env=pong", "hardware.device=cpu", "hardware.compile=true", "training.num_envs=1"))
    envs = builder.environments()
    envs.close()
    agent = builder.agent(envs.spec)

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no compiler here\nand a long trace")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NatureCNN, "compile", lambda module, **_: setattr(module, "_compiled_call_impl", refuse))
        compile_agent(builder, agent, envs.spec)
    assert [record.getMessage() for record in caplog.records] == [
        "hardware.compile: goes on without, because torch.compile failed: no compiler here"
    ]
    assert "compiled in" not in capsys.readouterr().err
    agent.online(screens())  # as before


def test_big_blocks_stay_with_the_process():
    """Memory that was freed is still there: without the switch glibc gives an array of this size back at once."""
    code = (
        "import os, sys\n"
        "def resident(): return int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE')\n"
        "from retrograd.build.hardware import keep_big_blocks\n"
        "if sys.argv[1] == 'on': keep_big_blocks()\n"
        "before = resident(); block = bytearray(b'x') * 20_000_000; del block\n"
        "print(resident() - before)"
    )
    kept = {}
    for switch in ("on", "off"):
        done = subprocess.run(
            [sys.executable, "-c", code, switch], capture_output=True, text=True, timeout=60, check=True
        )
        kept[switch] = int(done.stdout)
    assert kept["on"] > 15e6
    assert kept["off"] < 5e6


def test_without_glibc_big_blocks_are_refused_where_they_were_asked_for(monkeypatch):
    monkeypatch.setattr(switches.ctypes, "CDLL", lambda _: object())
    with pytest.raises(UsageError, match="needs glibc"):
        switches.set_allocators(compose("hardware.keep_big_blocks=true"))
    switches.set_allocators(compose("hardware.keep_big_blocks=null"))  # goes on without


def test_big_blocks_are_kept_unless_told_otherwise(monkeypatch):
    asked: list[bool] = []
    monkeypatch.setattr(switches, "keep_big_blocks", lambda: asked.append(True))
    switches.set_allocators(compose("hardware.keep_big_blocks=false"))
    assert asked == []
    switches.set_allocators(compose())
    assert asked == [True]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}),
        ({"PYTORCH_CUDA_ALLOC_CONF": "a:1"}, {"PYTORCH_CUDA_ALLOC_CONF": "a:1,expandable_segments:True"}),
        ({"PYTORCH_ALLOC_CONF": "a:1"}, {"PYTORCH_ALLOC_CONF": "a:1,expandable_segments:True"}),
        ({"PYTORCH_ALLOC_CONF": "expandable_segments:False"}, {"PYTORCH_ALLOC_CONF": "expandable_segments:False"}),
    ],
)
def test_settings_of_the_cuda_allocator_stand_beside_the_users_own(monkeypatch, before, after):
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    for name in names:
        monkeypatch.setenv(name, "")  # so that what is set here is taken away again
        monkeypatch.delenv(name)
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    switches.set_allocators(compose("hardware.expandable_segments=true"))
    assert {name: os.environ[name] for name in names if name in os.environ} == after


class Copy:
    """In place of a CUDA event."""

    waited = False

    def synchronize(self) -> None:
        self.waited = True


def test_a_buffer_comes_again_only_when_its_copy_is_over(monkeypatch):
    monkeypatch.setattr("retrograd.replay.staging.SMALL_BYTES", 0)  # small ones are left to the allocator
    stage, kind = Staging("cpu"), np.dtype(np.float32)
    address = stage.buffer((3,), kind).ctypes.data
    copy = Copy()
    stage._copies[address] = copy
    other = stage.buffer((4,), kind)
    assert not copy.waited
    again = stage.buffer((3,), kind)
    assert again.ctypes.data == address
    assert copy.waited
    assert other.ctypes.data != address


@pytest.mark.parametrize(("name", "used"), [("cuda:1", ["cuda:1"]), ("cuda", []), ("cpu", [])])
def test_the_device_of_a_run_is_made_cudas_current_one(monkeypatch, name, used):
    """Streams, events and graphs are those of the current device, whatever device the tensors are on."""
    seen: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: seen.append(str(device)))
    use_device(torch.device(name))
    assert seen == used


def test_pinned_memory_is_a_switch_of_cuda_alone():
    assert Staging("cuda")._pinned
    assert not Staging("cuda", pin_memory=False)._pinned
    assert not Staging("cpu")._pinned


@needs_cuda
def test_pinned_batches_arrive_whole():
    stage, tensors = Staging("cuda"), []
    for number in range(50):
        array = stage.buffer((1_000_000,), np.dtype(np.float32))
        array[:] = number
        tensors.append(stage.tensor(array))
        del array
        tensors.append(stage.tensor(np.full(1_000_000, number, np.float32)))  # pageable
    for number in range(50):  # looked at only now, when every buffer has been used again and again
        for tensor in tensors[2 * number : 2 * number + 2]:
            assert bool((tensor == number).all())


@needs_cuda
def test_encoders_compute_in_float16_on_cuda():
    encoder = NatureCNN(SCREEN).cuda()
    set_precision(encoder, "float16", CUDA)
    assert encoder(screens().cuda()).dtype == torch.float32
