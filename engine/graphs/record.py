"""Recording on the host: what a function does to torch, as a flat list of steps on fixed tensors."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from draftproof.engine.graphs.backend import CaptureError
from draftproof.engine.graphs.rules import WATCHED, OpFacts, facts_of, forbidden_function, has_mask
from draftproof.kernels.registry import REGISTERED_OPS

POISON_BYTE = 0xA5
"""Every byte of a graph's memory that holds nothing. As an int64 it is negative: an index made of it is refused."""

Step = Callable[[], Any]


def storage_key(tensor: Tensor) -> int:
    """Identity of a tensor's storage, for as long as the tensor lives."""
    return tensor.untyped_storage()._cdata


class Recorder(TorchDispatchMode):
    """Records each operation as a step on fixed tensors, and runs it once to learn its outputs, if it has any.

    `declared` may be read and written; what the capture allocates is `private`. Views of either are fixed tensors
    too, so that no step is recorded for a view.
    """

    def __init__(self, declared: Sequence[Tensor]) -> None:
        super().__init__()
        self.error: CaptureError | None = None
        self.steps: list[Step] = []
        self.private: dict[int, torch.UntypedStorage] = {}
        self.private_tensors: list[tuple[int, Tensor]] = []
        self._declared = {storage_key(tensor) for tensor in declared}
        self._saved: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self._rng_state: Tensor | None = None
        # By id: what a step uses in place of a tensor. _alive keeps ids and storage keys from being used again, as does
        # private_tensors, which has the key of the storage beside each.
        self._bound: dict[int, Tensor] = {}
        self._alive: list[Any] = list(declared)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        facts = facts_of(func)
        if facts.composite:
            # Only inference mode brings composites here; elsewhere autograd has taken them apart before.
            with self:
                result = func.decompose(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        if facts.restricted:
            self._check(facts, args)
        bound = self._bound
        # The usual argument is a tensor seen before: one look-up.
        bound_args = tuple(
            [self._bind(facts, value) if (known := bound.get(id(value))) is None else known for value in args]
        )
        kwargs = kwargs or {}
        bound_kwargs = {name: self._bind(facts, value) for name, value in kwargs.items()} if kwargs else kwargs
        if facts.is_kernel:
            # As on a device, a kernel in a capture does not run.
            self._zero_written(facts, bound_args, bound_kwargs)
            self.steps.append(partial(REGISTERED_OPS[func._opname], *bound_args, **bound_kwargs))
            return None
        if facts.writes or facts.seeded:
            self._save(facts, args, kwargs)
        result = facts.call(*args, **kwargs)
        fresh = self._register(result)
        if facts.allocates:
            result.untyped_storage().fill_(POISON_BYTE)
        elif fresh or not facts.is_view:
            self.steps.append(_step(func, facts, bound_args, bound_kwargs, fresh))
        return result

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: the wrapper that hides a mode from dynamo costs as much as the mode, and nothing here is compiled."""
        return False

    def fail(self, rule: str, op: str, reason: str) -> NoReturn:
        """Raise, and remember the error: a failed capture stays failed, even if the exception is swallowed."""
        error = CaptureError(rule, op, reason)
        self.error = self.error or error
        raise error

    def fixed(self, tensor: Tensor, op: str) -> Tensor:
        """Return the tensor that steps use for `tensor`. Raises CaptureError if its memory is not the graph's."""
        bound = self._bound.get(id(tensor))
        if bound is not None:
            return bound
        key = storage_key(tensor)
        if key in self.private:
            self.private_tensors.append((key, tensor))
            self._bound[id(tensor)] = tensor
            return tensor
        if key in self._declared:
            # An alias of our own: rebinding the caller's tensor later must not move what the graph reads.
            self._alive.append(tensor)
            self._bound[id(tensor)] = alias = tensor.detach()
            return alias
        self.fail("undeclared", op, f"a {list(tensor.shape)} tensor is in memory that was not declared")

    def roll_back(self) -> None:
        """Give all memory that existed before the capture the contents it had."""
        for storage, saved in self._saved.values():
            storage.copy_(saved)
        if self._rng_state is not None:
            torch.set_rng_state(self._rng_state)

    def _check(self, facts: OpFacts, args: tuple[Any, ...]) -> None:
        if facts.forbidden is not None:
            rule, reason = facts.forbidden
            self.fail(rule, facts.name, reason)
        if facts.indexing and has_mask(args[1]):
            self.fail("boolean_index", facts.name, "the number of elements depends on values of the device")

    def _bind(self, facts: OpFacts, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.fixed(value, facts.name)
        if isinstance(value, (list, tuple)):
            return [self._bind(facts, item) for item in value]
        return value

    def _zero_written(self, facts: OpFacts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Fill what a kernel would write of the graph's memory with zeros, which are in range as indices.

        Memory that nothing would have written stays poison.
        """
        for tensor in _written(facts, args, kwargs):
            if storage_key(tensor) in self.private:
                tensor.zero_()

    def _save(self, facts: OpFacts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if facts.seeded and self._rng_state is None:
            self._rng_state = torch.get_rng_state()
        for tensor in _written(facts, args, kwargs):
            storage = tensor.untyped_storage()
            if storage._cdata in self._declared and storage._cdata not in self._saved:
                self._saved[storage._cdata] = (storage, storage.clone())

    def _register(self, result: Any) -> list[tuple[int, Tensor]]:
        """Adopt the outputs; return those in newly allocated memory, each with its place in the result."""
        results = result if isinstance(result, (list, tuple)) else (result,)
        bound, private = self._bound, self.private
        fresh: list[tuple[int, Tensor]] = []
        allocated: set[int] = set()
        for place, tensor in enumerate(results):
            if not isinstance(tensor, Tensor) or id(tensor) in bound:
                continue
            bound[id(tensor)] = tensor
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key in self._declared:
                self._alive.append(tensor)
                continue
            if key not in private or key in allocated:
                allocated.add(key)
                private[key] = storage
                fresh.append((place, tensor))
            self.private_tensors.append((key, tensor))
        return fresh


class FunctionGuard(TorchFunctionMode):
    """Sees what never reaches the dispatcher on the CPU: reads on the host, and rebinding through `.data`.

    It is off inside every call that it passes on, so that an operation's own implementation may do as it likes.
    """

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in WATCHED and (forbidden := forbidden_function(func, args, kwargs)):
            rule, reason = forbidden
            self._recorder.fail(rule, getattr(func, "__name__", str(func)), reason)
        return func(*args, **kwargs)


def _written(facts: OpFacts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    """Yield the tensors that an operation writes."""
    for position, name in facts.writes:
        value = args[position] if position < len(args) else kwargs.get(name)
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, Tensor):
                yield tensor


def _step(
    func: Any, facts: OpFacts, args: tuple[Any, ...], kwargs: dict[str, Any], fresh: list[tuple[int, Tensor]]
) -> Step:
    """One call that does at replay what `func` did, with its outputs in the fixed tensors `fresh`."""
    if not fresh:
        return partial(facts.call, *args, **kwargs)
    if facts.copies:
        return partial(fresh[0][1].copy_, args[0])
    if facts.out is not None:
        call, names, dropped = facts.out
        if len(fresh) == len(names):
            outs = {name: tensor for name, (_, tensor) in zip(names, fresh, strict=True)}
            kept = {name: value for name, value in kwargs.items() if name not in dropped} if kwargs else kwargs
            return partial(call, *args, **kept, **outs)
    return partial(_call_and_copy, func._op, args, kwargs, tuple(fresh))


def _call_and_copy(
    op: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], fresh: tuple[tuple[int, Tensor], ...]
) -> None:
    result = op(*args, **kwargs)
    results = result if isinstance(result, (list, tuple)) else (result,)
    for place, fixed in fresh:
        fixed.copy_(results[place])
