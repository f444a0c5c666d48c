"""The gated delta net layer of a probe in numpy uint64, token by token (docs/semantics/states.md).

Shapes: `T` new rows, `J` all rows so far, `D` lanes, `N` key heads, `U` value heads, `H` key size, `E` value size, `C`
width of the convolution, `Q` its channels: all queries, all keys, all values. A state is one row: the window [C-1, Q],
the oldest input first, then S [U, H, E].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from draftproof.properties.values.scenario import Linear
from draftproof.properties.weights.probe import Weights
from draftproof.reference.probe.ring import ONE, mix, turned


@dataclass(frozen=True)
class LinearLayer:
    """The gated delta net and the MLP of a layer.

    Matrices are stored input first: `project` [D, Q+U*E+U+U] gives the inputs of the convolution, z, a and b; `conv`
    [C, 1, Q]; `start` is the state of a new request.
    """

    project: np.ndarray
    conv: np.ndarray
    a_log: np.ndarray
    dt_bias: np.ndarray
    norm: np.ndarray
    o: np.ndarray
    mlp: np.ndarray
    start: np.ndarray
    sizes: Linear

    @classmethod
    def of(cls, weights: Weights, prefix: str, sizes: Linear) -> LinearLayer:
        return cls(
            project=turned(np.concatenate([weights[f"{prefix}.{name}.weight"] for name in ("qkv", "z", "a", "b")])),
            conv=turned(weights[f"{prefix}.conv.weight"])[:, None],
            a_log=weights[f"{prefix}.a_log"],
            dt_bias=weights[f"{prefix}.dt_bias"],
            norm=np.tile(weights[f"{prefix}.norm.weight"], sizes.value_heads),
            o=turned(weights[f"{prefix}.o.weight"]),
            mlp=turned(weights[f"{prefix}.mlp.weight"]),
            start=np.concatenate([weights[f"{prefix}.start.{name}"].ravel() for name in ("conv", "ssm")]),
            sizes=sizes,
        )

    def __call__(self, x: np.ndarray, past: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows x [T, D] after the states past [J-T, size]: the output [T, D] and all states [J, size]."""
        last, states = past[-1] if len(past) else self.start, np.empty((len(x), len(self.start)), dtype=np.uint64)
        channels, heads = self.sizes.channels, self.sizes.value_heads
        projected = x @ self.project
        window, s = self._split(states)
        first_window, first_s = self._split(last[None])
        a, b = projected[:, -2 * heads : -heads], projected[:, -heads:]
        qkv = self._convolve(projected[:, :channels], first_window[0], window)
        o = self._delta(qkv, mix(self.a_log * (a + self.dt_bias)) | ONE, mix(b) | ONE, first_s[0], s)
        x = x + mix(mix(self.norm * o + projected[:, channels : -2 * heads]) @ self.o)
        return x + mix(x @ self.mlp), np.concatenate((past, states)) if len(past) else states

    def _split(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return views of states [T, size]: the windows [T, C-1, Q] and S [T, U, H, E]."""
        rows, sizes = len(states), self.sizes
        held = (sizes.conv - 1) * sizes.channels
        window = states[:, :held].reshape(rows, sizes.conv - 1, sizes.channels)
        return window, states[:, held:].reshape(rows, sizes.value_heads, sizes.key_dim, sizes.value_dim)

    def _convolve(self, new: np.ndarray, before: np.ndarray, windows: np.ndarray) -> np.ndarray:
        """Return outputs [T, Q] for inputs new [T, Q] after the window before [C-1, Q]; fill in the later windows."""
        inputs, rows = np.concatenate((before, new)), len(new)
        y = self.conv[0] * inputs[:rows]
        for j in range(1, len(self.conv)):
            y += self.conv[j] * inputs[j : j + rows]
            windows[:, j - 1] = inputs[j : j + rows]
        return mix(y)

    def _delta(
        self, qkv: np.ndarray, decay: np.ndarray, beta: np.ndarray, s: np.ndarray, after: np.ndarray
    ) -> np.ndarray:
        """Return o [T, U*E] of the delta rule from s [U, H, E] on; write each later S to `after`.

        It runs over qkv [T, Q], decay and beta [T, U].
        """
        rows, sizes = len(qkv), self.sizes
        keys, group = sizes.key_heads * sizes.key_dim, sizes.value_heads // sizes.key_heads
        qk = qkv[:, : 2 * keys].reshape(rows, 2, sizes.key_heads, 1, sizes.key_dim).repeat(group, axis=2)
        q, k = qk[:, 0], qk[:, 1]
        v = qkv[:, 2 * keys :].reshape(rows, sizes.value_heads, 1, sizes.value_dim)
        columns, decay, beta = k.swapaxes(2, 3), decay[:, :, None, None], beta[:, :, None, None]
        for t in range(rows):
            s = decay[t] * s
            w = beta[t] * (v[t] - k[t] @ s)
            s += columns[t] * w
            after[t] = s
        return (q @ after).reshape(rows, -1)
