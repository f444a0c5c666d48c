"""About how long a scenario takes: of scenarios that meet the same the cheaper one is run."""

from __future__ import annotations

from typing import NamedTuple

from draftproof.properties.values.scenario import Scenario


class Cost(NamedTuple):
    """What one of its kind takes, in hundredths of a CPU second: fitted to 240 measured scenarios (docs/results.md).

    What is of a token is taken for each that a request may emit.
    """

    request: float = 2.0
    launch: float = 0.2
    token_of_hybrid: float = 0.15
    token_and_column: float = 0.0003
    token_and_row: float = 0.002
    token_and_more_layers: float = 0.09
    second_run: float = 40.0
    second_service: float = 13.0
    data_rank: float = 35.0
    tensor_rank: float = 40.0
    token_and_tensor_rank: float = 0.27


COST = Cost()


def cost_of(scenario: Scenario) -> float:
    """Return about how many hundredths of a CPU second a check of a scenario takes."""
    schedule, ranks, model = scenario.schedule, scenario.ranks, scenario.model
    tokens = sum(one.budget for one in scenario.requests)
    of_token = (
        COST.token_of_hybrid * (getattr(model, "linear", None) is not None)
        + COST.token_and_column * model.vocab
        + COST.token_and_row * scenario.width
        + COST.token_and_more_layers * (getattr(scenario.draft, "layers", 1) - 1)
        + COST.token_and_tensor_rank * (ranks.tensor - 1)
    )
    return (
        COST.request * len(scenario.requests)
        + COST.launch * _launches(scenario, tokens)
        + of_token * tokens
        + COST.second_run * (scenario.variant != "none")
        + COST.second_service * (schedule.services - 1)
        + COST.data_rank * (ranks.data - 1)
        + COST.tensor_rank * (ranks.tensor - 1)
    )


def _launches(scenario: Scenario, tokens: int) -> float:
    """Return about how many chunks of prompts and rounds of requests there are; half of all drafts are not accepted."""
    schedule, width = scenario.schedule, scenario.width
    chunk = min(schedule.chunk, schedule.token_budget or schedule.chunk)
    cut = max(1.0, width / schedule.token_budget) if schedule.token_budget else 1.0
    return sum(-(-len(one.prompt) // chunk) for one in scenario.requests) + cut * tokens / 2
