"""What `draftproof audit` does between its options and its report: prompts and pair are read, the subject is run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from draftproof.cli import inputs, subjects

if TYPE_CHECKING:
    from draftproof.harness.audit.audit import Seen, Simulator
    from draftproof.properties.formats.round_log import LoggedText, Prompt
    from draftproof.properties.values.drafts import CheckpointDraft, Ngram
    from draftproof.reference.audit.fast_pair import ReadPair
    from draftproof.reference.audit.pair import AuditedPair


class Passes(NamedTuple):
    """How texts are decoded and drafts played: drafts of a round, tokens of a text, where, and whether slowly."""

    steps: int
    tokens: int
    device: inputs.DeviceName
    slow: bool


class Recorded(NamedTuple):
    """What a subject did on the prompts; its name, the versions of its packages, and what it takes for granted."""

    log: tuple[LoggedText, ...]
    subject: str
    versions: dict[str, str]
    assumes: str


def prompts(path: Path, model: Path, tokens: int) -> tuple[Prompt, ...]:
    """Return the prompts of a file. Raises LogError and CheckpointError, and InputError for what the target has not."""
    from draftproof.properties.formats.checkpoint_config import read_config
    from draftproof.properties.formats.round_log import check_vocabulary, read_prompts

    config, given = read_config(model), read_prompts(path)
    most = config.max_position_embeddings
    for number, (one, budget) in enumerate(zip(given, budgets(given, tokens), strict=True), start=1):
        length = len(one.prompt)
        if most is not None and length + budget > most:
            raise inputs.InputError(
                f"{path}: invalid prompt {number} of {length} tokens with {budget} to decode: expected at most"
                f" {most} together, max_position_embeddings of '{model}'"
            )
    check_vocabulary((one.prompt for one in given), config.vocab_size, str(path))
    return given


def budgets(given: Sequence[Prompt], tokens: int) -> list[int]:
    """Return how many tokens are decoded after each prompt at most."""
    return [one.max_tokens or tokens for one in given]


def read(model: Path, spec: CheckpointDraft | Ngram, passes: Passes) -> ReadPair | AuditedPair:
    """Read target and draft, before anything is run. Raises InputError, and CheckpointError where they do not fit."""
    import torch

    from draftproof.reference.audit.fast_pair import read_fast
    from draftproof.reference.audit.pair import load_pair

    torch.set_num_threads(1)
    if fast := None if passes.slow else read_fast(str(model), spec):
        return fast
    if passes.device != "cpu":
        raise inputs.InputError(
            f"invalid --device {passes.device}: expected cpu, as a model with linear attention has no fast pass, and"
            " --slow is none"
        )
    return load_pair(str(model), spec)


def simulator(
    pair: ReadPair | AuditedPair,
    spec: CheckpointDraft | Ngram,
    seen: Seen,
    given: Sequence[Prompt],
    passes: Passes,
) -> Simulator:
    """Decode the prompts, or follow a log. Raises LogError for a log of tokens or drafts that there cannot be."""
    import torch

    from draftproof.harness.audit.compared import as_counted
    from draftproof.properties.formats.round_log import LogError, check_vocabulary
    from draftproof.properties.values.drafts import algorithm, is_free
    from draftproof.reference.audit.fast import FastSimulator
    from draftproof.reference.audit.pair import AuditedPair
    from draftproof.reference.audit.slow import SlowFollower, SlowSimulator

    log = as_counted(seen.log or (), algorithm(spec), passes.steps)
    early = next((number for number, text in enumerate(log) if not text.first), None)
    if early is not None and not is_free(spec):
        raise LogError(
            f"--log: request {early} has drafts in round 0: expected none, as the draft takes what the target makes of"
            " the prompt"
        )
    check_vocabulary((text.tokens for text in log), pair.target.config.vocab_size, "--log")
    if not isinstance(pair, AuditedPair):
        on = pair.on(torch.device(passes.device))
        return FastSimulator(on, () if log else given, log, steps=passes.steps, budget=passes.tokens)
    return SlowFollower(pair, log, passes.steps) if log else SlowSimulator(pair, given, passes.steps, passes.tokens)


def record(
    under_test: subjects.UnderTest,
    model: Path,
    spec: CheckpointDraft | Ngram,
    given: Sequence[Prompt],
    passes: Passes,
    *,
    capture: bool = True,
) -> Recorded:
    """Run a subject on the prompts; without `capture` the scenario asks for no graphs.

    Raises InputError, LogError, and SubjectCrashedError for whatever it raises.
    """
    from draftproof.harness.audit.record import record
    from draftproof.harness.subject_report import assumed, versions_of
    from draftproof.harness.subject_run import closing
    from draftproof.properties.formats.checkpoint_config import read_config
    from draftproof.properties.values.scenario import Checkpoint

    target = Checkpoint(path=str(model), vocab=read_config(model).vocab_size)
    with under_test.patched() as made, closing(under_test.made(made)) as subject:
        log = record(subject, target, spec, given, steps=passes.steps, budget=passes.tokens, capture=capture)
        return Recorded(log, subject.name, versions_of(subject), assumed(subject))
