"""`draftproof tracer run`: an endpoint that decodes with a tracer checkpoint, right or wrong, and how."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from draftproof.cli import inputs, screen, subjects
from draftproof.cli.again import again
from draftproof.cli.groups import with_option_groups
from draftproof.report.numbers import plural

if TYPE_CHECKING:
    from draftproof.tracer.endpoints import Endpoint
    from draftproof.tracer.program import Program
    from draftproof.tracer.runs import TracerCase, TracerReport

_LONGEST, _SPARE, _STEPS = 300, 16, 3
Checkpoint = Annotated[Path, typer.Option("--checkpoint", help="The tracer checkpoint, as `tracer build` wrote it.")]
Api = Annotated[
    str | None,
    typer.Option("--api", help="With --url: vllm, llama or sglang (default: whichever answers with token ids)."),
]
Model = Annotated[str | None, typer.Option("--model", help="With --url: the model's name, where the server wants it.")]
Drafts = Annotated[
    int | None,
    typer.Option(
        "--drafts",
        help="Drafts of a round (default: 3 of a subject; of a server as its /metrics say, else none are compared).",
        min=0,
        max=64,
    ),
]
DraftModel = Annotated[
    Path | None,
    typer.Option("--draft-model", help="Without --url: the draft, if it is not in the checkpoint's folder."),
]
Dtype = Annotated[str, typer.Option("--dtype", help="Without --url: what the subject computes in.")]
Requests = Annotated[int, typer.Option("--requests", help="Requests to serve.", min=1, max=100_000)]
Longest = Annotated[
    int | None,
    typer.Option("--longest", help="Tokens of the longest prompt (default: 300, or what the model takes).", min=1),
]
Count = Annotated[int, typer.Option("--tokens", help="The most tokens that a request emits.", min=1, max=4096)]
Seconds = Annotated[float, typer.Option("--seconds", help="The most seconds to look for an explanation.", min=0)]
Replay = Annotated[Path | None, typer.Option("--replay", help="Serve the session of this case again.")]
Case = Annotated[Path, inputs.output("--case", "Where the case is saved, if there is one.")]


class TracerTarget(NamedTuple):
    """What is tested: the server at `url`, or a subject."""

    subject: subjects.UnderTest
    url: str | None


def given(
    subject: subjects.Name = None,
    python: subjects.Python = None,
    url: Annotated[str | None, typer.Option("--url", help="The address of a server.")] = None,
    set_: subjects.Set = None,
    device: inputs.MaybeDevice = None,
    fault: subjects.FaultId = None,
    patch: subjects.Patch = None,
) -> TracerTarget:
    """Return what the options name. Raises InputError."""
    own = {
        "--subject": subject,
        "--python": python,
        "--set": set_,
        "--device": device,
        "--fault": fault,
        "--patch": patch,
    }
    beside = next((name for name, value in own.items() if value is not None), None)
    if url is not None and beside:
        raise inputs.InputError(
            f"invalid {beside} with --url: expected one of them, as a server runs what it was started with"
        )
    if url is None and beside is None:
        raise inputs.InputError("nothing to test: expected --url, or --subject, as engine or transformers")
    return TracerTarget(subjects.chosen(subject, python, None, set_, device, fault, patch), url)


@with_option_groups(tested=given)
def run(
    checkpoint: Checkpoint,
    tested: TracerTarget,
    api: Api = None,
    model: Model = None,
    drafts: Drafts = None,
    draft_model: DraftModel = None,
    dtype: Dtype = "float32",
    requests: Requests = 60,
    longest: Longest = None,
    tokens: Count = 24,
    seed: inputs.Seed = 0,
    seconds: Seconds = 60.0,
    replay: Replay = None,
    case: Case = Path(".draftproof/tracer-case.json"),
    json: inputs.Json = None,
) -> None:
    """Serve generated requests, and compare tokens and accepted drafts with what must come.

    What is wrong is shrunk, explained and saved as a case.
    """
    from msgspec.structs import replace

    from draftproof.properties.formats.checkpoint_config import read_config
    from draftproof.tracer import runs
    from draftproof.tracer.checkpoint import architecture_of, draft_name
    from draftproof.tracer.program import read_program
    from draftproof.tracer.sessions import sessions, small_sessions

    if not checkpoint.is_dir():
        raise inputs.InputError(
            f"invalid --checkpoint '{checkpoint}': expected a directory, as `tracer build` writes it"
        )
    for option, value, of_server in (
        ("--api", api, True),
        ("--model", model, True),
        ("--draft-model", draft_model, False),
    ):
        if value is not None and of_server != (tested.url is not None):
            raise inputs.InputError(
                f"invalid {option} '{value}': expected {'only with' if of_server else 'without'} --url"
            )
    program = read_program(checkpoint)
    most = (read_config(checkpoint).max_position_embeddings or 1 << 15) - tokens - _SPARE
    chosen = longest or min(_LONGEST, most)
    if chosen > most:
        told = f"at most {most}, as the model has positions for beside {tokens} new tokens"
        raise inputs.InputError(f"invalid --longest {chosen}: expected {told}")
    known = _case(replay, program) if replay else None
    drawn = [known.session] if known else list(sessions(program, seed, requests, chosen, tokens))
    more = small_sessions(program, seed, chosen, tokens)
    with ExitStack() as stack:
        width = known.width if known and drafts is None else drafts
        fault, has_draft = tested.subject.fault_id(), program.has_draft
        if tested.url is not None:
            endpoint = _server(tested.url, api, model, width, program)
        else:
            # A case of width 0 is of a subject whose rounds were not compared.
            width = width or None if drafts is None else width
            endpoint, has_draft = _subject(stack, tested.subject, checkpoint, draft_model, width, dtype, program)
        with screen.progress("sessions", len(drawn)) as advance:
            needs = endpoint.drafting.width > 0 or bool(drafts and program.has_draft)
            # What a case is of may need no draft at all: then its tokens alone say whether it is mended.
            needs &= known is None or runs.has_room(program, known.session, endpoint.drafting)
            report = runs.judge(
                endpoint, program, drawn, advance, seconds, shrink=known is None, more=more, needs_drafts=needs
            )
    draft = draft_name(program, checkpoint) if has_draft else ""
    report = replace(report, architecture=architecture_of(checkpoint), draft=draft, fault=fault)
    same = {"url": tested.url, **(tested.subject.of_cases if tested.url is None else {})}
    same |= {"checkpoint": checkpoint, "api": api, "model": model, "drafts": drafts, "draft_model": draft_model}
    same |= {} if tested.url else {"dtype": dtype}
    generated = {} if known else {"longest": longest, "requests": requests, "tokens": tokens, "seed": seed}
    repeated = again("tracer", "run", **same, **generated, replay=replay)
    if report.case and known is None:
        _save(case, report.case, repeated)
        repeated = again("tracer", "run", **same, replay=case)
    show(report, repeated)
    inputs.finish(json, report, report.verdict)


def _case(path: Path, program: Program) -> TracerCase:
    """Read a case of this checkpoint. Raises InputError and InvalidScenarioError."""
    from draftproof.properties.formats.case import decode
    from draftproof.tracer.program import BOS
    from draftproof.tracer.runs import TracerCase, identity

    try:
        found = decode(path.read_bytes(), TracerCase, name=str(path))
    except OSError as error:
        raise inputs.InputError(f"invalid --replay '{path}': it cannot be read: {error.strerror}") from None
    if found.program != identity(program):
        raise inputs.InputError(f"invalid --replay '{path}': expected a case of this --checkpoint, not of another one")
    for one in found.session.requests:
        if one.prompt[0] != BOS or BOS in one.prompt[1:]:
            raise inputs.InputError(f"invalid --replay '{path}': expected prompts with {BOS} first, and nowhere else")
    return found


def _save(path: Path, case: TracerCase, origin: str) -> None:
    import msgspec

    from draftproof.properties.formats.case import encode

    inputs.write_text("--case", path, encode(msgspec.structs.replace(case, origin=origin)) + "\n")


def _server(url: str, api: str | None, model: str | None, drafts: int | None, program: Program) -> Endpoint:
    from draftproof.subjects.openai.dialects import DIALECTS
    from draftproof.tracer.endpoints import HttpEndpoint
    from draftproof.tracer.simulated import Drafting

    named = inputs.choose(api, [*DIALECTS], "--api") if api else None
    if drafts and not program.has_draft:
        raise inputs.InputError(f"invalid --drafts {drafts}: expected a tracer checkpoint with a draft")
    endpoint = HttpEndpoint(url, named, model, drafts or 0)
    if not program.has_draft or drafts == 0:
        endpoint.drafting = Drafting(0)
    return endpoint


def _subject(
    stack: ExitStack,
    under_test: subjects.UnderTest,
    checkpoint: Path,
    folder: Path | None,
    drafts: int | None,
    dtype: str,
    program: Program,
) -> tuple[Endpoint, bool]:
    """Return the subject as an endpoint, and whether it runs the checkpoint's draft."""
    from draftproof.harness.subject_run import closing
    from draftproof.tracer.endpoints import DTYPES, SubjectEndpoint, draft_of

    named = inputs.choose(dtype, DTYPES, "--dtype")
    spec = stack.enter_context(under_test.patched())
    subject = stack.enter_context(closing(under_test.made(spec)))
    has = subject.limits.drafts
    draft = draft_of(program, checkpoint, folder, has)
    if draft and draft.algorithm not in has:
        screen.line(f"{subject.name} has no draft {draft.algorithm}: tokens alone are compared")
        draft = None
    if drafts == 0:
        raise inputs.InputError(f"invalid --drafts {drafts}: expected 1 or more of a subject")
    known = drafts is not None
    return SubjectEndpoint(subject, checkpoint, draft, drafts or _STEPS, named, is_known=known), draft is not None


def show(report: TracerReport, repeated: str) -> None:
    """Print what is wrong, what explains it, and how to have it again."""
    if report.first is not None and report.case is not None:
        _show_first(report)
    told = f"{plural(report.requests, 'request')}, {plural(report.tokens, 'token')}"
    drafts = f", accepted drafts of {report.compared} in {plural(report.rounds, 'round')}"
    told += drafts if report.compared else "; accepted drafts were not compared"
    if report.verdict == "INCONCLUSIVE":
        told += ": expected rounds that are told, and --tokens 3 or more, so that a draft can be accepted"
    result = f"{report.wrong} wrong" if report.wrong else "all right"
    screen.line(
        f"{report.verdict}: {report.endpoint}: {told}; {result}, in {report.seconds:.1f} s. Again: {repeated}", "bold"
    )


def _show_first(report: TracerReport) -> None:
    first, case = report.first, report.case
    assert first is not None
    assert case is not None
    requests = case.session.requests
    asked = requests[first.request]
    beside = f", beside {plural(len(requests) - 1, 'other')}" if len(requests) > 1 else ""
    screen.line(f"a prompt of {plural(len(asked.prompt), 'token')}, {asked.count} asked for{beside}:", "red")
    what = {"tokens": f"token {first.place}", "rounds": f"the number of tokens in decode round {first.place + 1}"}[
        first.what
    ]
    what = "the number of rounds" if first.place < 0 else what
    screen.line(f"  {what}: expected {_told(first.right)}, got {_told(first.got)}")
    if not report.explanations:
        screen.line("  no mistake that is known here reproduces it")
    for place, one in enumerate(report.explanations):
        chance = f"by chance: 2^-{one.bits:.0f}"
        of = f"{one.wrong} of {one.of_wrong} wrong requests, and {one.right} of {one.of_right} right ones"
        told = "explained by" if not place else "or by" if place < report.equal else "then by"
        screen.line(f"  {told}: {one.name} (reproduces exactly {of}; {chance})")
    if report.equal > 1:
        screen.line(f"  no prompt that was tried tells these {report.equal} explanations apart")


def _told(value: int | None) -> str:
    return "none" if value is None else str(value)
