"""A release of SGLang: its modules, with what they take from a running server given to them."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import torch

from draftproof.subjects.sglang.bare import StubAttributes
from draftproof.subjects.wheels.modules import WheelModules
from draftproof.subjects.wheels.unpack import release_of, unpacked

_SIZES = ("tp_size", "dp_size", "pp_size", "attn_cp_size", "attn_tp_size", "attn_dp_size", "attn_dcp_size", "ep_size")
"""Ranks of every kind: one."""
ALONE = ("require_gathered_buffer", "require_mlp_tp_gather", "require_mlp_sync", "require_attn_tp_gather")
"""What is asked to learn of other ranks; there are none."""
_CONTEXT = "sglang.srt.runtime_context"


class SglangRelease:
    """An unpacked wheel of SGLang with its Triton kernels interpreted; one is open in a process at a time.

    `settings` are the server's arguments, for all code that asks.
    """

    _open: ClassVar[tuple[str, SglangRelease] | None] = None

    @classmethod
    def open(cls, wheel: str) -> SglangRelease:
        """Return the release of a wheel; another one that was open before is closed. Raises WheelError."""
        if cls._open is not None and cls._open[0] == wheel:
            return cls._open[1]
        cls.close_open()
        folder = Path(tempfile.mkdtemp(prefix="sglang-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        place = unpacked(Path(wheel), folder)
        _, version = release_of(place, Path(wheel), ("sglang",))
        cls._open = wheel, cls(place, version)
        return cls._open[1]

    @classmethod
    def close_open(cls) -> None:
        """Close the release that is open, if one is."""
        if cls._open is not None:
            cls._open[1].close()

    def __init__(self, place: Path, version: str) -> None:
        self._while_open = ExitStack()
        self.modules, self.version = WheelModules(place), version
        self.settings: dict[str, Any] = {
            "device": "cpu",
            "attention_backend": "torch_native",
            **dict.fromkeys(_SIZES, 1),
        }
        self._while_open.enter_context(_interpreted())
        self._give_context()

    def close(self) -> None:
        """Forget the modules, and compile again."""
        type(self)._open = None
        self._while_open.close()
        self.modules.close()

    def find(self, module: str, name: str) -> Any:
        """Return what a module of `sglang.srt` defines; None if the release lacks it. Raises WheelImportError."""
        return self.modules.find(f"sglang.srt.{module}", name)

    def server_args(self) -> StubAttributes:
        """Return the settings as the server's arguments, false wherever nothing was set."""
        return StubAttributes(**self.settings)

    def set_steps(self, steps: int, most_rows: int) -> None:
        """Set the server's arguments for chains of `steps` draft steps."""
        self.settings.update(
            speculative_num_steps=steps,
            speculative_num_draft_tokens=steps + 1,
            speculative_eagle_topk=1,
            max_running_requests=most_rows,
        )

    def restart(self) -> None:
        """Forget what a server's process keeps of its graph runners, as if it began anew."""
        if pool := self.find("model_executor.input_buffers", "_forward_input_buffer_pool"):
            pool.clear()

    def _give_context(self) -> None:
        """Let later releases find the settings in what their server publishes."""
        if not self.modules.has(_CONTEXT):
            return
        context = self.modules.module(_CONTEXT)
        for name in vars(context).copy():
            if name.startswith("get_") and name not in ("get_buffer", "get_stream", "get_context"):
                setattr(context, name, self.server_args)


@contextmanager
def _interpreted() -> Iterator[None]:
    """Interpret Triton kernels, and run what is compiled elsewhere as it stands.

    Triton tells later processes by its variable in the environment, and takes that back as well.
    """
    with torch.compiler.set_stance("force_eager"), ExitStack() as stack:
        try:
            import triton
            from triton.runtime.interpreter import InterpretedFunction
            from triton.runtime.jit import JITFunction
        except ImportError:
            pass
        else:
            stack.enter_context(triton.knobs.runtime.scope())
            triton.knobs.runtime.interpret = True
            # Functions of the language itself, such as tl.sum, were decorated when Triton was imported.
            for module in (triton.language, triton.language.standard):
                for name, value in vars(module).copy().items():
                    if isinstance(value, JITFunction):
                        stack.callback(setattr, module, name, value)
                        setattr(module, name, InterpretedFunction(value.fn))
        yield


def replace_everywhere(name: str, value: Any) -> None:
    """Give all modules of the release that have a name another value for it."""
    for module in [one for key, one in sys.modules.items() if key.startswith("sglang.")]:
        if name in vars(module):
            setattr(module, name, value)


def run_alone() -> None:
    """Let the modules of the release know of no other ranks, and of no padding for them."""
    for name in (*ALONE, "enable_num_token_non_padded"):
        replace_everywhere(name, lambda *_, **__: False)
