"""A scenario in words."""

from __future__ import annotations

from draftproof.properties.values.drafts import algorithm
from draftproof.properties.values.scenario import Scenario


def describe_scenario(scenario: Scenario) -> str:
    """Return what a scenario contains, in one line."""
    requests, graphs = scenario.requests, scenario.graphs
    tokens = sum(len(request.prompt) for request in requests)
    parts = [
        many(len(requests), "request"),
        many(tokens, "prompt token"),
        f"{algorithm(scenario.draft)} with at most {many(scenario.steps, 'draft')} a round",
        f"page size {scenario.memory.page_size}",
        f"graphs of {', '.join(map(str, graphs.sizes))}" if graphs.sizes and graphs.capture else "no graphs",
    ]
    if layers := getattr(scenario.model, "layers", None):
        parts.append(many(layers, "layer"))
    parts += ["adaptive"] if scenario.adaptive else []
    parts += [f"variant {scenario.variant}"] if scenario.variant != "none" else []
    return ", ".join(parts)


def many(count: int, noun: str) -> str:
    """Return the count with its noun: 1 request, 2 requests."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
