"""The probe models in Python integers, one number at a time: a twin of the reference that shares nothing with it.

A row is one position; `w` are the weights as nested lists.
"""

from collections.abc import Sequence

import numpy as np

from draftproof.properties.values.drafts import DFlash, Eagle, Eagle3, Mtp, ProbeDraft, Standalone
from draftproof.properties.values.scenario import Linear, ProbeModel
from draftproof.properties.weights.probe import (
    draft_weights,
    standalone_model,
    target_weights,
)

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


def naive_layer(
    w: dict[str, list],
    prefix: str,
    spec: ProbeModel | ProbeDraft,
    xs: list[list[int]],
    residuals: list[list[int]] | None = None,
) -> tuple:
    """Returns (outputs, entries as (k, v), o[0, 0]) of each position; `residuals` in the place of xs."""
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
        x = residuals[p] if residuals else x
        y = [(a + naive_mix(dot(row, o))) & MASK for a, row in zip(x, w[f"{prefix}.o.weight"], strict=True)]
        outputs.append(
            [(a + naive_mix(dot(row, y))) & MASK for a, row in zip(y, w[f"{prefix}.mlp.weight"], strict=True)]
        )
    return outputs, entries, firsts


def naive_logits(w: dict[str, list], h: list[int], bits: int, agreement: int, layer: int = -1) -> list[int]:
    """Those of a target, or of a layer of a draft: of its own ids, if it has any."""
    vocab = len(w["unembed"])
    ids = w.get("own.ids", range(vocab))
    rows = w.get(f"own.unembed.{layer}") or [w["unembed"][token] for token in ids]
    logits = [naive_mix(dot(row, h)) >> (64 - bits) for row in rows]
    m = naive_mix(h[0])
    for place, token in enumerate(ids):
        if m % 256 < agreement and token == (m >> 33) % vocab:
            logits[place] += 2**23
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
    return naive_model(spec, lists(target_weights(spec)), tokens)


def naive_standalone(draft: Standalone, target: ProbeModel, tokens: tuple[int, ...]) -> tuple[list, list, list, list]:
    """As `naive_target`."""
    return naive_model(standalone_model(draft, target), lists(draft_weights(draft, target)), tokens)


def naive_outputs(spec: ProbeModel, tokens: tuple[int, ...]) -> list[list[list[int]]]:
    """The output of every layer at every position."""
    kept: list[list[list[int]]] = []
    naive_model(spec, lists(target_weights(spec)), tokens, kept)
    return kept


def naive_model(
    spec: ProbeModel, w: dict[str, list], tokens: tuple[int, ...], kept: list | None = None
) -> tuple[list, list, list, list]:
    """As `naive_target`; `kept` gets the output of every layer."""
    kept = [] if kept is None else kept
    xs, kv, states, carry = [w["embed"][token] for token in tokens], [], [], []
    for layer in range(spec.layers):
        if spec.layer_types and spec.layer_types[layer] == "linear_attention":
            xs, after = naive_linear(w, f"layers.{layer}", spec.linear, xs)
            states.append(after)
            kept.append(xs)
            continue
        xs, entries, firsts = naive_layer(w, f"layers.{layer}", spec, xs)
        kept.append(xs)
        kv.append([k + v for k, v in entries])
        carry = carry or firsts
    hidden = [[first] + [naive_mix(a) for a in x[1:]] for first, x in zip(carry, xs, strict=True)]
    return hidden, [naive_logits(w, h, spec.logit_bits, spec.agreement) for h in hidden], kv, states


def naive_head(head: Eagle, spec: ProbeModel, tokens: tuple[int, ...], hidden: list) -> tuple[list, list, list]:
    """(handed on, logits, entries)."""
    return _naive_entries(head, spec, 0, "", tokens, hidden)


def naive_joined(head: Eagle3, spec: ProbeModel, features: list) -> list:
    """fc over features."""
    w = lists(draft_weights(head, spec))
    return [[dot(row, f) for row in w["fc"]] for f in features]


def naive_eagle3(head: Eagle3, spec: ProbeModel, tokens: tuple[int, ...], xs: list) -> tuple[list, list, list]:
    """(g, logits, entries) of states xs of the head's width."""
    w = lists(draft_weights(head, spec))
    ids = [v + offset for v, offset in enumerate(w.get("d2t", [0] * spec.vocab))]
    embedded = [w["embed"][token] for token in tokens]
    normed = [[naive_mix(x[0]), x[1], *map(naive_mix, x[2:])] for x in xs]
    both = [[*map(naive_mix, e), *x] for e, x in zip(embedded, normed, strict=True)]
    outputs, entries, firsts = naive_layer(w, "layers.0", head, both, residuals=xs)
    states, logits = [], []
    for p, (e, y, first) in enumerate(zip(embedded, outputs, firsts, strict=True)):
        carry = (first + naive_mix((e[0] + (p + 1) * w["carry.position"][0]) & MASK)) & MASK
        states.append([carry, e[0], *y[2:]])
        s = [carry, naive_mix(e[0]), *map(naive_mix, y[2:])]
        favourite = (naive_mix(carry) >> 33) % spec.vocab
        base = [naive_mix(dot(row, s)) >> (64 - spec.logit_bits) for row in w["unembed"]]
        logits.append([value + 2**23 * (token == favourite) for token, value in zip(ids, base, strict=True)])
    return states, logits, [k + v for k, v in entries]


def naive_chain_layer(
    draft: Mtp, target: ProbeModel, layer: int, tokens: tuple[int, ...], hidden: list
) -> tuple[list, list, list]:
    """(handed on, logits, entries) of a layer of a chain; entry i has the token of position i + 1 + layer."""
    return _naive_entries(draft, target, layer, f".{layer}", tokens, hidden)


def _naive_entries(
    draft: Eagle | Mtp, target: ProbeModel, layer: int, ending: str, tokens: tuple[int, ...], hidden: list
) -> tuple[list, list, list]:
    w, xs = lists(draft_weights(draft, target)), []
    embedded = [w["own.embed" if draft.own_embedding else "embed"][token] for token in tokens]
    if draft.masks_first:
        embedded[0] = [0] * target.lanes
    for e, x_in in zip(embedded, hidden, strict=True):
        xs.append([naive_mix(dot(row, e + x_in)) for row in w[f"fc{ending}"]])
    xs, entries, _ = naive_layer(w, f"layers.{layer}", draft, xs)
    handed, logits = [], []
    for p, (e, x_in, x) in enumerate(zip(embedded, hidden, xs, strict=True)):
        y = [dot(row, x) for row in w[f"out{ending}"]]
        place, added = (p + 1 + layer) * w["carry.position"][0], e[-1 if draft.own_embedding else 0]
        carry = (x_in[0] + naive_mix((added + place) & MASK)) & MASK
        g = [carry] + [naive_mix(value) for value in y[1:]]
        logits.append(naive_logits(w, g, target.logit_bits, 256, layer))
        handed.append([carry, *y[1:]] if draft.handed == "before_norm" else g)
    return handed, logits, [k + v for k, v in entries]


def naive_context(w: dict[str, list], layer: int, features: list) -> list[tuple[list[int], list[int]]]:
    """The context entries (k, v) of a layer of a block draft."""

    def part(name: str, p: int, f: list[int]) -> list[int]:
        rows = zip(w[f"layers.{layer}.{name}.context"], w[f"layers.{layer}.{name}.position"], strict=True)
        return [naive_mix((dot(row, f) + p * place) & MASK) for row, place in rows]

    return [(part("k", p, f), part("v", p, f)) for p, f in enumerate(features)]


def naive_block(draft: DFlash, target: ProbeModel, ids: Sequence[int], features: list) -> tuple[list, list, list]:
    """(g, logits, entries by layer) of a block of ids behind the context of features.

    The id of a mask is the vocabulary's size.
    """
    w, n = lists(draft_weights(draft, target)), len(features)
    embed = [*w["embed"], w["mask"]]
    xs = [[dot(row, embed[token]) for row in w["in"]] for token in ids]
    group, carry, kv = draft.heads // draft.kv_heads, [], []
    for layer in range(draft.layers):
        prefix, seen, queries = f"layers.{layer}", naive_context(w, layer, features), []
        for p, (token, x) in enumerate(zip(ids, xs, strict=True), start=n):
            q, k, v = (
                [
                    naive_mix((dot(row, x) + p * place) & MASK)
                    for row, place in zip(w[f"{prefix}.{name}.weight"], w[f"{prefix}.{name}.position"], strict=True)
                ]
                for name in "qkv"
            )
            queries.append([a * b & MASK for a, b in zip(q, w[f"{prefix}.q.gate"], strict=True)])
            if layer == 0 and token == target.vocab:
                v[0] = 0
            seen.append((k, v))
        kv.append([k + v for k, v in seen])
        for row, (q, x) in enumerate(zip(queries, xs, strict=True)):
            o = []
            for head in range(draft.heads):
                at, place = slice(head // group * draft.key_dim, (head // group + 1) * draft.key_dim), head // group
                one = q[head * draft.key_dim : (head + 1) * draft.key_dim]
                weights = [naive_mix(dot(one, k[at])) | 1 for k, _ in seen]
                for e in range(place * draft.value_dim, (place + 1) * draft.value_dim):
                    o += [dot(weights, [v[e] for _, v in seen])]
            carry += [o[0]] * (layer == 0)
            y = [(a + naive_mix(dot(line, o))) & MASK for a, line in zip(x, w[f"{prefix}.o.weight"], strict=True)]
            lines = zip(y, w[f"{prefix}.mlp.weight"], strict=True)
            xs[row] = [(a + naive_mix(dot(line, y))) & MASK for a, line in lines]
    states = []
    for row, x in enumerate(xs):
        c = carry[row] if row else naive_mix(carry[row])
        for s in range(1, row):
            lane = w["embed"][(naive_mix(c) >> 33) % target.vocab][0]
            c = (c + naive_mix((lane + (n + s) * w["carry.position"][0]) & MASK)) & MASK
        states.append([c] + [naive_mix(dot(line, x)) for line in w["out"][1:]])
    return states, [naive_logits(w, g, target.logit_bits, 256) for g in states], kv
