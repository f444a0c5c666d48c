"""What scenarios must have that only tests of contracts, campaigns and the like take: name -> whether one has it."""

from collections.abc import Callable

from draftproof.properties.features import features_of
from draftproof.properties.values.drafts import Algorithm, algorithm
from draftproof.properties.values.scenario import Scenario


def _of(draft: Algorithm, *features: str) -> Callable[[Scenario], bool]:
    """Return whether a scenario is of this draft and has exactly these features, in the order of FEATURES."""
    return lambda one: algorithm(one.draft) == draft and features_of(one) == features


NAMES: dict[str, Callable[[Scenario], bool]] = {
    "grammar_sampled": _of("dflash", "sampling", "grammars"),
    "ngram_adaptive": _of("ngram", "adaptive-steps"),
    "tree_coded_ngram": lambda one: (
        _of("ngram", "hybrid", "trees", "kv-quantization", "sampling")(one) and one.states.commit == "snapshot"
    ),
}
