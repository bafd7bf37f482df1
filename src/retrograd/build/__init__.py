"""The composition root: config → parts → trainer. Below this folder nobody sees a config."""

from retrograd.build.builder import Builder, Judge, restore_agent
from retrograd.build.memory import check_memory, memory_needed
from retrograd.build.protocol import describe_protocol, planned_spec
from retrograd.build.resume import Resumed, resume_trainer
from retrograd.build.run import build_trainer, run_folder
from retrograd.config import ConfigManager

__all__ = [
    "Builder",
    "ConfigManager",
    "Judge",
    "Resumed",
    "build_trainer",
    "check_memory",
    "describe_protocol",
    "memory_needed",
    "planned_spec",
    "restore_agent",
    "resume_trainer",
    "run_folder",
]
