"""What only scenarios of probes have, and its removal."""

from __future__ import annotations

from draftproof.properties.strategies.aborts import without_aborts
from draftproof.properties.strategies.codes import without_codes
from draftproof.properties.strategies.ends import without_ends
from draftproof.properties.strategies.handovers import without_handover
from draftproof.properties.strategies.images import without_images
from draftproof.properties.strategies.logprobs import without_prompt_logprobs
from draftproof.properties.strategies.mixed import without_mixed
from draftproof.properties.strategies.overlap import without_overlap
from draftproof.properties.strategies.ranks import without_ranks
from draftproof.properties.strategies.step_tokens import without_step_tokens
from draftproof.properties.strategies.windows import without_windows
from draftproof.properties.values.scenario import Scenario


def without_what_probes_have(scenario: Scenario) -> Scenario:
    """Return a scenario of a probe with nothing that is not defined for a checkpoint."""
    served = without_mixed(without_step_tokens(without_ends(without_aborts(without_ranks(scenario)))))
    served = without_overlap(without_handover(served))
    return without_prompt_logprobs(without_images(without_codes(without_windows(served))))
