"""The mutation score: operators do what they say, samples repeat, survivors count, triages hold."""

import ast
import re

import pytest
from msgspec.structs import replace

pytest.importorskip("cosmic_ray", reason="the mutation score needs cosmic-ray (in the extra `test`)")

from cosmic_ray.mutating import mutate_code

from draftproof.faults.catalogue import read_sources
from draftproof.faults.kept import MUTANTS, KeptResults, RunSettings
from draftproof.faults.mutation.__main__ import described
from draftproof.faults.mutation.mutant import NOT_MUTATED, diff, mutable
from draftproof.faults.mutation.mutants import sample, spots
from draftproof.faults.mutation.operators import OWN_OPERATORS, operators
from draftproof.faults.mutation.score import Fate, JudgedMutant, Triage, judge_all, ops_of, phases_of, scored, triaged
from draftproof.faults.orders import TaskResult, is_twin
from draftproof.faults.patching import apply, parse
from draftproof.faults.served import ForkServer
from draftproof.faults.trial import FaultOutcome, SeedResult
from draftproof.properties.strategies.version import STRATEGIES_VERSION

EXAMPLES = [(operator, example) for operator in OWN_OPERATORS.values() for example in operator.examples()]


@pytest.mark.parametrize(("operator", "example"), EXAMPLES)
def test_our_operators_do_what_their_examples_say(operator, example):
    made = mutate_code(example.pre_mutation_code, operator(), example.occurrence)
    assert made == example.post_mutation_code


@pytest.mark.parametrize(
    "text",
    [
        "def f(a: int, b: str):\n    return a\n",
        "def f(a: int):\n    return a.b\n",
        "def f(a: int, b: int):\n    g(b=1)\n    return 0\n",
        "def f(a: Tensor, b: Tensor):\n    return a.device\n",
    ],
)
def test_only_like_parameters_are_taken_for_each_other(text):
    assert not [spot for spot in spots("engine/x.py", text) if spot.kind == "wrong variable"]


def test_annotations_errors_and_assertions_are_left_alone():
    text = "def f(a: int | None = None) -> int | None:\n    x = zip(a, a, strict=True)\n    raise ValueError(a + 1)\n"
    assert not list(spots("engine/x.py", text))


@pytest.mark.parametrize("body", ["if a > 1:\n    raise E", "for b in a:\n    if b < 2:\n        raise E(b + 1)"])
def test_what_only_refuses_is_left_to_tests(body):
    assert not list(spots("engine/x.py", body + "\n"))
    assert list(spots("engine/x.py", body + "\n    a = b + 1\n"))


@pytest.mark.parametrize(
    "body",
    [
        "if a > 1:\n    text = a + 1\n    raise E(text)",
        "if a > 1:\n    refuse_more(a + 1)",
        "b = launch(num_warps=a + 1, num_stages=3)",
        "if PDL:\n    gdc_wait()",
        "tl.debug_barrier()",
        "self.probes.before_launch(1)",
        "max(a, 2)\n",
    ],
)
def test_what_no_healthy_run_on_a_cpu_shows_is_left_alone(body):
    text = f"def f(a):\n    {body.replace(chr(10), chr(10) + '    ')}\n"
    kinds = {spot.kind for spot in spots("kernels/x.py", text)}
    assert kinds == ({"off by one", "dropped statement"} if "max" in body else set())


@pytest.mark.parametrize("body", ["tl.max(a, 1)", "f(a, num=a + 1)", "if a > 1:\n    b = a + 1"])
def test_what_only_looks_like_it_is_mutated(body):
    assert list(spots("kernels/x.py", body + "\n"))


def test_a_sample_is_a_function_of_its_seed():
    sources = {path: text for path, text in mutable().items() if path in ("engine/pages.py", "kernels/eager_cache.py")}
    one, again, other = sample(3, 12, sources), sample(3, 12, sources), sample(4, 12, sources)
    assert one == again
    assert {mutant.id for mutant in one} != {mutant.id for mutant in other}
    assert len({mutant.text for mutant in one}) == 12


def test_a_mutant_is_a_patch_that_makes_it():
    sources = {path: text for path, text in mutable().items() if path == "engine/pages.py"}
    for mutant in sample(0, 10, sources):
        text, _ = apply(sources[mutant.path], parse(diff(mutant, sources)))
        assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(mutant.text))


def test_every_operator_applies_somewhere():
    kinds = {spot.kind for path, text in mutable().items() if "triton" in path for spot in spots(path, text)}
    assert kinds == operators().keys()


def test_what_is_left_out_is_there():
    sources = read_sources()
    for entry in NOT_MUTATED:
        path, _, name = entry.partition("::")
        assert any(one.startswith(path) for one in sources)
        assert not name or re.search(rf"^ *(def|class) {name}\b", sources[path], re.MULTILINE)


def test_functions_are_left_out_by_name():
    text = "def load(a: int) -> int:\n    return a + 1\n\n\ndef kept(a: int) -> int:\n    return a + 1\n"
    path = "engine/models/registry.py"
    assert {spot.line for spot in spots(path, text.replace("load", "load_target"))} == {6}
    assert {spot.line for spot in spots(path, text)} == {2, 6}


def row(fate: Fate, after: str = "b") -> JudgedMutant:
    return JudgedMutant(path="engine/x.py", line=1, kind="boundary", before="a", after=after, fate=fate)


def test_the_score_leaves_out_what_is_equivalent_and_what_is_no_python():
    rows = [row(Fate.CONTRACT), row(Fate.CRASHED), row(Fate.SURVIVED, "c"), row(Fate.UNREACHED, "d"), row(Fate.BROKEN)]
    known = Triage(equivalent={"engine/x.py | a | c": "the same"}, left={"engine/x.py | a | d": "on CUDA only"})
    score = scored(0, rows, known)
    assert (score.sampled, score.killed, score.by_contract, score.equivalent) == (4, 2, 1, 1)
    assert score.score == pytest.approx(2 / 3)
    assert score.by_kind == {"boundary": (2, 3)}
    assert [one.why for one in score.mutants] == ["", "", "the same", "on CUDA only", ""]


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ("x = tl.load(p, mask=m < 3, other=7)", "masked"),
        ("x = tl.load(p, mask=m <= 3, other=0)", ""),
        ("x = tl.load(p, mask=m <= 3, other=7)", ""),
        ("x = tl.load(q, mask=m < 3, other=0)", "known"),
    ],
)
def test_only_what_a_masked_load_gives_beyond_its_mask_is_equivalent(after, why):
    before = "x = tl.load(p, mask=m < 3, other=0)"
    one = replace(row(Fate.SURVIVED, after), before=before)
    known = Triage(
        masked={one.place: "masked"}, equivalent={f"{one.place} | x = tl.load(q, mask=m < 3, other=0)": "known"}
    )
    assert known.why_equivalent(one) == why


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ("x = f(b.shape[0], a.shape[1])", "same"),
        ("x = f(b.shape[0], b.shape[1])", ""),
        ("x = f(a.shape[0], b.shape[0])", ""),
    ],
)
def test_only_what_is_known_to_be_equal_is_taken_for_the_other(after, why):
    one = replace(row(Fate.SURVIVED, after), before="x = f(a.shape[0], a.shape[1])")
    known = Triage(same={"engine/x.py | a.shape[0] | b.shape[0]": "same"})
    assert known.why_equivalent(one) == why
    assert known.why_equivalent(replace(one, path="engine/y.py")) == ""


def test_whatever_survives_in_a_line_that_only_cuts_work_is_equivalent():
    rows = [row(Fate.SURVIVED, "c"), row(Fate.CONTRACT, "d")]
    for known in (Triage(speed={rows[0].place: "a matter of speed"}), Triage(defaults={rows[0].place: "given"})):
        assert [one.fate for one in scored(0, rows, known).mutants] == [Fate.EQUIVALENT, Fate.CONTRACT]


def test_the_document_tells_contracts_from_crashes_and_hangs():
    noticed = [row(Fate.CONTRACT), row(Fate.CONTRACT, "e"), row(Fate.CRASHED), row(Fate.HUNG)]
    rows = [replace(one, by="draft.ids" if one.fate is Fate.CONTRACT else "") for one in noticed]
    text = described(scored(5, [*rows, row(Fate.SURVIVED, "c"), row(Fate.BROKEN)], Triage()), 60)
    assert "**80.0 %**: 4 of 5 mutants are noticed (seed 5, 5 sampled, 0 of them equivalent, 60 scenarios each" in text
    assert f"strategies version {STRATEGIES_VERSION}, python 3." in text
    assert "**By a contract: 40.0 %**, 2 of 5. By a crash or a hang: 2 (1 crashed, 1 hung)." in text
    assert "| noticed by | mutants |\n|---|---:|\n| draft.ids | 2 |\n| (crashed) | 1 |\n| (hung) | 1 |\n" in text
    assert "## Survivors\n\n- `engine/x.py` (boundary): `a` -> `c`: survived\n\n## Equivalent\n\nNone.\n" in text
    assert text.startswith("# Mutation score\n\n**")
    assert "\n\n\n" not in text
    assert "**none**: 0 of 0 mutants" in described(scored(5, [], Triage()), 60)


def test_a_triage_does_not_hide_that_a_mutant_is_noticed():
    score = scored(0, [row(Fate.CONTRACT)], Triage(equivalent={"engine/x.py | a | b": "the same"}))
    assert (score.killed, score.equivalent) == (1, 0)


def test_triages_are_of_lines_that_are_there():
    sources = read_sources()
    known = triaged()
    assert not known.equivalent.keys() & known.left.keys()
    assert not known.speed.keys() & known.masked.keys()
    for key, why in (known.equivalent | known.defaults | known.speed | known.masked | known.left).items():
        path, before = key.split(" | ", 2)[:2]
        lines = {line.strip() for line in sources[path].splitlines()}
        assert before in lines or all(part in sources[path] for part in before.split("  ")), key
        assert len(why) > 20, key
    for key, why in known.same.items():
        path, this, other = key.split(" | ")
        assert this in sources[path], key
        assert all(name in sources[path] for name in re.findall(r"\w+", other)), key
        assert len(why) > 20, key


def test_kernels_are_held_to_the_contracts_of_what_their_file_is_in():
    sources = read_sources()
    assert ops_of("kernels/eager_cache.py", sources) == ("kv_move", "kv_write", "token_attention"), "it is read there"
    assert ops_of("kernels/triton_cache.py", sources) == ("kv_move", "kv_write", "quantised_write")
    assert ops_of("kernels/triton_penalties.py", sources) == ("apply_penalties",)
    assert {"fp8_write", "paged_attention", "windowed_attention"} <= set(ops_of("kernels/triton_fp8.py", sources))
    assert len(ops_of("kernels/triton_common.py", sources)) > 20
    assert phases_of("kernels/triton_cache.py") == ("interpreted",)
    assert phases_of("kernels/registry.py")[0] == "interpreted"
    assert "interpreted" not in phases_of("kernels/eager_cache.py")


def test_mutants_are_noticed_and_survive(server: ForkServer):
    """A wrong length is noticed; what nothing runs survives."""
    path = "engine/pages.py"
    text = mutable()[path]
    made = sample(0, 400, {path: text})
    noticed = next(one for one in made if one.kind == "dropped statement" and "pages.append" in one.before)
    score = judge_all([noticed], 0, 6, serve=server.run)
    assert score.mutants[0].fate in (Fate.CONTRACT, Fate.CRASHED)


def test_a_score_that_was_cut_goes_on_with_the_others(tmp_path):
    mutants, path, asked = sample(2, 4), tmp_path / "score.json.results.jsonl", []
    settings = RunSettings(seed=2, seeds=1, examples=1, device="cpu")

    def scored_until(left):
        def serve(batch):
            for number, task in enumerate(batch.tasks):
                if number == left:
                    raise KeyboardInterrupt
                asked.append((task.id, batch.interpreted, bool(task.ops)))
                yield TaskResult(id=task.id, seeds=(SeedResult(seed=2, outcome=FaultOutcome.SURVIVED),))

        with KeptResults(path, settings, [one.id for one in mutants], MUTANTS) as kept:
            return judge_all(mutants, 2, 1, serve=serve, keep=kept.serve)

    with pytest.raises(KeyboardInterrupt):
        scored_until(2)
    score = scored_until(None)
    # A clean twin runs again beside what is left.
    mutated = [one for one in asked if not is_twin(one[0])]
    assert len(mutated) == len(set(mutated)) == len(mutants)
    assert score.sampled == len(mutants)
    assert {one.fate for one in score.mutants} <= {Fate.SURVIVED, Fate.EQUIVALENT}
