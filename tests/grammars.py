"""Patterns that are drawn, of few letters."""

import random


def drawn_pattern(rng: random.Random, depth: int = 3) -> str:
    """A pattern of the letters a to d, of which tokens spell the first three."""
    kind = rng.randrange(8)
    if not depth or kind == 0:
        return rng.choice("abcd")
    if kind == 1:
        return f"[{''.join(rng.choices('abcd', k=2))}]"
    one, other = drawn_pattern(rng, depth - 1), drawn_pattern(rng, depth - 1)
    return {
        2: f"({one}|{other})",
        3: one + other,
        4: one + other,
        5: f"({one}){rng.choice('*+?')}",
        6: f"({one}){{{rng.randint(0, 1)},{rng.randint(1, 3)}}}",
        7: f"({one}|)",
    }[kind]
