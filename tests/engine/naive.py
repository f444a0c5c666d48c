"""Memory of a model in plain loops: entries by position in a dict, states after each token by position too.

`T` packed tokens, `N` kv heads, `H` key size, `U` value heads, `E` value size, `Q` channels, `C` conv width.
"""

import torch
import torch.nn.functional as F

from draftproof.engine.models.base import AttentionMetadata, RecurrentWeights, StateShape

State = tuple[torch.Tensor, torch.Tensor]


def where(rows: list[int], positions: list[int]) -> AttentionMetadata:
    return AttentionMetadata(torch.tensor(rows), torch.tensor(positions), torch.zeros(len(rows), dtype=torch.int64))


class NaiveCache:
    """Attends and recurs one token at a time; `states` has (window [C - 1, Q], S [U, H, E]) after each token."""

    def __init__(self, shape: StateShape | None = None) -> None:
        self.shape = shape
        self.entries: dict[tuple[int, int, int], tuple[torch.Tensor, torch.Tensor]] = {}
        self.states: dict[tuple[int, int, int], State] = {}

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, where: AttentionMetadata, scale: float
    ) -> torch.Tensor:
        places = list(zip(where.req_rows.tolist(), where.positions.tolist(), strict=True))
        for i, (row, position) in enumerate(places):
            self.entries[layer, row, position] = (k[i].clone(), v[i].clone())
        return torch.stack([self._attend_one(layer, row, p, q[i], scale) for i, (row, p) in enumerate(places)])

    def attend_token(self, layer: int, token: object, where: AttentionMetadata, scale: float) -> None:
        """Return None: `attend` does it."""

    def _attend_one(self, layer: int, row: int, position: int, q: torch.Tensor, scale: float) -> torch.Tensor:
        seen = [self.entries[layer, row, p] for p in range(position + 1)]
        keys, values = (
            torch.stack(part).repeat_interleave(q.shape[0] // part[0].shape[0], 1) for part in zip(*seen, strict=True)
        )
        weights = torch.softmax(scale * torch.einsum("nh,pnh->np", q, keys), dim=1)
        return torch.einsum("np,pnh->nh", weights, values)

    def recur(
        self,
        layer: int,
        weights: RecurrentWeights,
        x: torch.Tensor,
        a: torch.Tensor,
        b: torch.Tensor,
        where: AttentionMetadata,
    ) -> torch.Tensor:
        assert self.shape is not None
        outputs = []
        for i, (row, position) in enumerate(zip(where.req_rows.tolist(), where.positions.tolist(), strict=True)):
            before = self.states[layer, row, position - 1] if position else self._zero(x)
            after, output = _token(self.shape, weights, before, x[i], a[i], b[i])
            self.states[layer, row, position] = after
            outputs.append(output.to(x.dtype))
        return torch.stack(outputs)

    def _zero(self, x: torch.Tensor) -> State:
        s = self.shape
        assert s is not None
        window = x.new_zeros((s.conv - 1, s.channels))
        return window, torch.zeros((s.value_heads, s.key_dim, s.value_dim), dtype=s.state_dtype, device=x.device)


def _token(
    s: StateShape, weights: RecurrentWeights, before: State, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor
) -> tuple[State, torch.Tensor]:
    inputs = torch.cat((before[0], x[None]))
    y = F.silu((inputs * weights.conv.T).sum(0)).to(s.state_dtype)
    queries, keys, values = y.split([s.key_heads * s.key_dim, s.key_heads * s.key_dim, s.value_heads * s.value_dim])
    decay = torch.exp(-torch.exp(weights.a_log) * F.softplus(a.to(s.state_dtype) + weights.dt_bias))
    beta = torch.sigmoid(b.to(s.state_dtype))
    states, outputs = [], []
    for u in range(s.value_heads):
        head = u // (s.value_heads // s.key_heads)
        q, k = (_unit(part.view(s.key_heads, -1)[head]) for part in (queries, keys))
        state = decay[u] * before[1][u]
        update = beta[u] * (values.view(s.value_heads, -1)[u] - state.T @ k)
        state = state + torch.outer(k, update)
        states.append(state)
        outputs.append(state.T @ (q * s.key_dim**-0.5))
    return (inputs[1:].clone(), torch.stack(states)), torch.stack(outputs)


def _unit(x: torch.Tensor) -> torch.Tensor:
    return x / torch.sqrt(x.square().sum() + 1e-6)
