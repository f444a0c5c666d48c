"""The probe models in Python integers, one number at a time: a twin of the reference that shares nothing with it.

A row is one position; `w` are the weights as nested lists.
"""

from __future__ import annotations

import numpy as np

from draftproof.properties.values.drafts import Eagle
from draftproof.properties.values.probe import head_weights, target_weights
from draftproof.properties.values.scenario import Linear, ProbeModel

MASK = 2**64 - 1


def naive_mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def dot(a: list[int], b: list[int]) -> int:
    total = 0
    for left, right in zip(a, b, strict=True):
        total += left * right
    return total & MASK


def naive_layer(w: dict[str, list], prefix: str, spec: ProbeModel | Eagle, xs: list[list[int]]) -> tuple:
    """Returns (outputs, entries as (k, v), o[0, 0]) of each position."""
    heads, group = spec.heads, spec.heads // spec.kv_heads
    queries, entries, outputs, firsts = [], [], [], []

    def project(name: str, x: list[int], p: int) -> list[int]:
        rows, places = w[f"{prefix}.{name}.weight"], w[f"{prefix}.{name}.position"]
        return [naive_mix((dot(row, x) + p * place) & MASK) for row, place in zip(rows, places, strict=True)]

    for p, x in enumerate(xs):
        gate = w[f"{prefix}.q.gate"]
        queries.append([(q * g) & MASK for q, g in zip(project("q", x, p), gate, strict=True)])
        entries.append((project("k", x, p), project("v", x, p)))
        o = []
        for u in range(heads):
            n = u // group
            query = queries[p][u * spec.key_dim : (u + 1) * spec.key_dim]
            for e in range(spec.value_dim):
                total = 0
                for s in range(p + 1):
                    key, value = entries[s]
                    score = dot(query, key[n * spec.key_dim : (n + 1) * spec.key_dim])
                    total += (naive_mix(score) | 1) * value[n * spec.value_dim + e]
                o.append(total & MASK)
        firsts.append(o[0])
        y = [(a + naive_mix(dot(row, o))) & MASK for a, row in zip(x, w[f"{prefix}.o.weight"], strict=True)]
        outputs.append(
            [(a + naive_mix(dot(row, y))) & MASK for a, row in zip(y, w[f"{prefix}.mlp.weight"], strict=True)]
        )
    return outputs, entries, firsts


def naive_logits(w: dict[str, list], h: list[int], bits: int, agreement: int) -> list[int]:
    logits = [naive_mix(dot(row, h)) >> (64 - bits) for row in w["unembed"]]
    m = naive_mix(h[0])
    if m % 256 < agreement:
        logits[(m >> 33) % len(logits)] += 2**23
    return logits


def lists(weights: dict[str, np.ndarray]) -> dict[str, list]:
    return {name: array.tolist() for name, array in weights.items()}


def naive_linear(w: dict[str, list], prefix: str, sizes: Linear, xs: list[list[int]]) -> tuple[list, list]:
    """Returns (outputs, states) of each position, one head and one number at a time."""
    channels, keys, ending = sizes.channels, sizes.key_heads * sizes.key_dim, sizes.conv - 1

    def weight(name: str) -> list:
        return w[f"{prefix}.{name}"]

    def project(name: str, x: list[int]) -> list[int]:
        return [dot(row, x) for row in weight(f"{name}.weight")]

    inputs, outputs, states = [list(row) for row in weight("start.conv")], [], []
    s = [[list(row) for row in head] for head in weight("start.ssm")]
    for x in xs:
        z, a, b = project("z", x), project("a", x), project("b", x)
        inputs.append(project("qkv", x))
        taps = list(zip(*inputs[-sizes.conv :], strict=True))
        y = [naive_mix(dot(weight("conv.weight")[c], list(taps[c]))) for c in range(channels)]
        flat = []
        for u in range(sizes.value_heads):
            n = u // (sizes.value_heads // sizes.key_heads)
            q, k = (y[from_ + n * sizes.key_dim :][: sizes.key_dim] for from_ in (0, keys))
            v = y[2 * keys + u * sizes.value_dim :][: sizes.value_dim]
            decay = naive_mix(weight("a_log")[u] * (a[u] + weight("dt_bias")[u]) & MASK) | 1
            s[u] = [[decay * value & MASK for value in row] for row in s[u]]
            seen = [dot(k, [row[e] for row in s[u]]) for e in range(sizes.value_dim)]
            write = [(naive_mix(b[u]) | 1) * (v[e] - seen[e]) & MASK for e in range(sizes.value_dim)]
            s[u] = [[(row[e] + k[h] * write[e]) & MASK for e in range(sizes.value_dim)] for h, row in enumerate(s[u])]
            flat += [dot(q, [row[e] for row in s[u]]) for e in range(sizes.value_dim)]
        gate = weight("norm.weight") * sizes.value_heads
        r = [naive_mix((gate[i] * flat[i] + z[i]) & MASK) for i in range(len(flat))]
        x = [(old + naive_mix(dot(row, r))) & MASK for old, row in zip(x, weight("o.weight"), strict=True)]
        outputs.append([(old + naive_mix(new)) & MASK for old, new in zip(x, project("mlp", x), strict=True)])
        window = [value for row in inputs[-ending:] for value in row]
        states.append(window + [value for head in s for row in head for value in row])
    return outputs, states


def naive_target(spec: ProbeModel, tokens: tuple[int, ...]) -> tuple[list, list, list, list]:
    """(hidden, logits, entries by full attention layer, states by linear layer)."""
    w = lists(target_weights(spec))
    xs, kv, states, carry = [w["embed"][token] for token in tokens], [], [], []
    for layer in range(spec.layers):
        if spec.layer_types and spec.layer_types[layer] == "linear_attention":
            xs, after = naive_linear(w, f"layers.{layer}", spec.linear, xs)
            states.append(after)
            continue
        xs, entries, firsts = naive_layer(w, f"layers.{layer}", spec, xs)
        kv.append([k + v for k, v in entries])
        carry = carry or firsts
    hidden = [[first] + [naive_mix(a) for a in x[1:]] for first, x in zip(carry, xs, strict=True)]
    return hidden, [naive_logits(w, h, spec.logit_bits, spec.agreement) for h in hidden], kv, states


def naive_head(head: Eagle, spec: ProbeModel, tokens: tuple[int, ...], hidden: list) -> tuple[list, list, list]:
    """(g, logits, entries)."""
    w = lists(head_weights(head, spec))
    xs = []
    for token, x_in in zip(tokens, hidden, strict=True):
        both = w["embed"][token] + x_in
        xs.append([naive_mix(dot(row, both)) for row in w["fc"]])
    xs, entries, _ = naive_layer(w, "layers.0", head, xs)
    states = []
    for p, (token, x_in, x) in enumerate(zip(tokens, hidden, xs, strict=True)):
        g = [naive_mix(dot(row, x)) for row in w["out"]]
        g[0] = (x_in[0] + naive_mix((w["embed"][token][0] + (p + 1) * w["carry.position"][0]) & MASK)) & MASK
        states.append(g)
    return states, [naive_logits(w, g, spec.logit_bits, 256) for g in states], [k + v for k, v in entries]
