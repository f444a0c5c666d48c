"""Functions of SGLang as subjects, on a hand-made wheel that stands for a release."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from draftproof.harness.lockstep import evidence
from draftproof.harness.subject_crash import SubjectCrashedError
from draftproof.properties.fit import fitted
from draftproof.properties.judge import judge
from draftproof.properties.validate import validate
from draftproof.properties.values.adaptive_steps import Adaptive
from draftproof.properties.values.scenario import Graphs
from draftproof.subjects.sglang.commit import StateCommit
from draftproof.subjects.sglang.config import DraftConfig
from draftproof.subjects.sglang.dflash import BlockAcceptance
from draftproof.subjects.sglang.draft_decode import DraftDecode
from draftproof.subjects.sglang.eagle_extend import EagleExtend
from draftproof.subjects.sglang.mtp import ChainExtend
from draftproof.subjects.sglang.policy import POLICY_KINDS, AdaptivePolicy
from draftproof.subjects.sglang.pools import PoolSteps
from draftproof.subjects.sglang.release import SglangRelease
from draftproof.subjects.sglang.worker import LackingPartError
from draftproof.subjects.wheels.modules import WheelImportError
from draftproof.subjects.wheels.unpack import WheelError
from tests.named import named
from tests.subjects.tiny_sglang import tiny_wheel

WORKER = "sglang/srt/speculative/eagle_worker_v2.py"
RUNNER = "sglang/srt/speculative/eagle_draft_cuda_graph_runner.py"


MTP = "sglang/srt/models/qwen3_next_mtp.py"
DFLASH = "sglang/srt/speculative/dflash_utils.py"
POLICY = "sglang/srt/speculative/adaptive_spec_params.py"
MIXIN = "sglang/srt/model_executor/model_runner_kv_cache_mixin.py"


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Afterwards Triton is compiled again, here and in processes that this one starts."""
    yield
    SglangRelease.close_open()
    assert "TRITON_INTERPRET" not in os.environ


EAGLE = ("eagle_padded", "five_in_graphs")
CHAINS = ("mtp_chain_partial", "mtp_one_step")
BLOCKS = ("dflash_block", "disaggregated")
STATES = ("hybrid_snapshot", "sampled_hybrid_snapshot")
LISTS = ("adaptive_hybrid", "adaptive_quarter")


def first_failures(subject, graphs=True, names=EAGLE):
    """Yield the contract that fails first in each scenario, "" where none does, as far as one is asked."""
    scenarios = fitted(map(named, names), subject.limits)
    assert all(one.graphs.capture and one.graphs.sizes for one in scenarios)
    if not graphs:
        scenarios = [replace(scenario, graphs=Graphs()) for scenario in scenarios]
    for scenario in scenarios:
        first = judge(evidence(subject, scenario)).first
        yield first.contract if first else ""


def is_told(failures, contract):
    """Whether some scenario fails by the contract; if it is "", whether none fails."""
    return contract in failures if contract else not any(failures)


@pytest.mark.parametrize("graphs", [False, True])
def test_right_draft_steps_pass_eagerly_and_through_graphs(tmp_path, graphs):
    assert is_told(first_failures(DraftDecode(str(tiny_wheel(tmp_path, "1.0"))), graphs), "")


@pytest.mark.parametrize(
    ("graphs", "file", "old", "new", "contract"),
    [
        (False, WORKER, "info.hidden_states = hidden\n", "forward_batch.positions.add_(1)\n", "draft.positions"),
        (False, WORKER, "slots[:, i]", "slots[:, 0]", "memory.slots"),
        (True, WORKER, "hidden = out.hidden_states", "pass", "draft.hidden"),
        (True, WORKER, "tokens.append(token)", "tokens.insert(0, token)", "draft.proposed"),
        (True, RUNNER, "self.hidden[:raw] = info.hidden_states", "pass", "draft.hidden"),
    ],
)
def test_a_mistake_in_draft_steps_is_found(tmp_path, graphs, file, old, new, contract):
    wheel = tiny_wheel(tmp_path, "1.0", {file: (old, new)})
    assert contract in first_failures(DraftDecode(str(wheel)), graphs)


EXTEND_RUNNER = "sglang/srt/speculative/eagle_draft_extend_cuda_graph_runner.py"
LAYERS = "sglang/srt/speculative/multi_layer_eagle_worker_v2.py"
STAGES = ("prefill", "verify", "verify, graphs")


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(("kind", "names"), [(EagleExtend, EAGLE), (ChainExtend, CHAINS)])
def test_right_extends_pass(tmp_path, kind, names, stage):
    assert is_told(first_failures(kind(str(tiny_wheel(tmp_path, "1.0")), stage=stage), names=names), "")


@pytest.mark.parametrize(
    ("stage", "file", "old", "new", "contract"),
    [
        ("prefill", WORKER, "ids[1:], tail.reshape(1)", "tail.reshape(1), ids[1:]", "extend.ids"),
        (
            "prefill",
            WORKER,
            "hidden_states=target_hidden_states",
            "hidden_states=-target_hidden_states",
            "extend.hidden",
        ),
        ("verify", WORKER, "batch_result.accept_lens - 1", "batch_result.accept_lens * 0", "extend.proposal"),
        ("verify", WORKER, "seq_lens_cpu.tolist()", "seq_lens_cpu.add(1).tolist()", "extend.positions"),
        (
            "verify, graphs",
            EXTEND_RUNNER,
            "= forward_batch.out_cache_loc",
            "= forward_batch.out_cache_loc + 1",
            "memory.slots",
        ),
        ("verify, graphs", EXTEND_RUNNER, "forward_batch.spec_info.hidden_states\n", "0\n", "extend.hidden"),
    ],
)
def test_a_mistake_in_extends_is_found(tmp_path, stage, file, old, new, contract):
    wheel = tiny_wheel(tmp_path, "1.0", {file: (old, new)})
    assert contract in first_failures(EagleExtend(str(wheel), stage=stage))


@pytest.mark.parametrize(
    ("stage", "old", "new", "contract"),
    [
        ("prefill", "tails[i] = batch.chunked_req_next_prompt_token", "pass", "extend.ids"),
        ("verify", "if self.chain_mtp_hidden_states and", "if False and", "chain.hidden"),
        ("verify, graphs", "rotate(forward_batch.input_ids", "rotate(forward_batch.input_ids.clone()", "chain.ids"),
    ],
)
def test_a_mistake_in_chained_layers_is_found(tmp_path, stage, old, new, contract):
    wheel = tiny_wheel(tmp_path, "1.0", {LAYERS: (old, new)})
    assert contract in first_failures(ChainExtend(str(wheel), stage=stage), names=CHAINS)


@pytest.mark.parametrize(
    ("old", "new", "contract"), [("_bonus(", "_bonus(", ""), ("[:, :-1])", "[:, 1:])", "accept.greedy")]
)
def test_the_acceptance_of_blocks_is_judged(tmp_path, old, new, contract):
    wheel = tiny_wheel(tmp_path, "1.0", {DFLASH: (old, new)})
    assert is_told(first_failures(BlockAcceptance(str(wheel)), names=BLOCKS), contract)


@pytest.mark.parametrize(
    ("old", "new", "contract"),
    [
        ("i -= 1", "i -= 1", ""),
        ("(1 - alpha) * self", "alpha * self", "adaptive_steps.average"),
        ("self.ema_accept_len > steps[i]", "self.ema_accept_len > 1 + steps[i]", "adaptive_steps.steps"),
    ],
)
def test_decisions_of_a_policy_are_judged(tmp_path, old, new, contract):
    subject = AdaptivePolicy(str(tiny_wheel(tmp_path, "1.0", {POLICY: (old, new)})), kind="list")
    assert is_told(failures_or_crashes(subject, LISTS), contract)


@pytest.mark.parametrize(
    ("old", "new", "contract"),
    [
        ("max_speculative_num_draft_tokens\n", "max_speculative_num_draft_tokens\n", ""),
        ("max_speculative_num_draft_tokens\n", "speculative_num_draft_tokens\n", "commit.intermediate"),
    ],
)
def test_pools_sized_by_the_steps_in_force_are_found(tmp_path, old, new, contract):
    subject = PoolSteps(str(tiny_wheel(tmp_path, "1.0", {MIXIN: (old, new)})))
    assert is_told(failures_or_crashes(subject, LISTS), contract)


def test_graphs_are_captured_before_there_is_anything_in_a_slot(tmp_path):
    # Runners share buffers: one that is made later, for fewer steps, would write where requests have entries.
    subject = DraftDecode(str(tiny_wheel(tmp_path, "1.0")))
    fewer = Adaptive(initial=5, candidates=(2, 3, 4, 5), alpha=0.5, interval=1, warmup=0, down=0.0, up=2.0)
    scenarios = [
        validate(
            replace(scenario, variant="none", steps=5, adaptive_steps=fewer, graphs=Graphs(sizes=(4,), capture=True))
        )
        for scenario in map(named, (*EAGLE, "logprobs", "hybrid_snapshot"))
    ]
    judged = [judge(evidence(subject, scenario)) for scenario in fitted(scenarios, subject.limits)]
    assert [one.first for one in judged] == [None] * 4


def test_policies_of_other_kinds_are_lacking(tmp_path):
    wheel = str(tiny_wheel(tmp_path, "1.0"))
    assert [AdaptivePolicy(wheel, kind=kind).hooks()[0].found for kind in POLICY_KINDS] == [True, False, False]
    with pytest.raises(ValueError, match="invalid setting kind='lists': expected list, slots, slots with none"):
        AdaptivePolicy(wheel, kind="lists")


def failures_or_crashes(subject, names):
    """Yield the contract that fails first in each scenario, and crashes by name."""
    for scenario in fitted(map(named, names), subject.limits):
        try:
            first = judge(evidence(subject, scenario)).first
        except SubjectCrashedError as error:
            yield str(error).partition(":")[0]
        else:
            yield first.contract if first else ""


@pytest.mark.parametrize(
    ("old", "new", "contract"),
    [
        ("steps=accept_lens - 1", "steps=accept_lens - 1", ""),
        ("steps=accept_lens - 1", "steps=accept_lens - 2", "commit.state"),
        ("accepted_steps=accept_lens - 1, mamba_track", "mamba_track", "TypeError"),
    ],
)
def test_steps_that_a_worker_commits_are_judged(tmp_path, old, new, contract):
    wheel = tiny_wheel(tmp_path, "1.0", {WORKER: (old, new)})
    assert list(failures_or_crashes(StateCommit(str(wheel)), STATES)) == [contract] * 2


@pytest.mark.parametrize(
    ("old", "new", "contract"),
    [("deepcopy(config)", "deepcopy(config)", ""), ("copy.deepcopy(config)", "config", "config.seen")],
)
def test_a_constructor_that_changes_the_shared_configuration_is_found(tmp_path, old, new, contract):
    wheel = tiny_wheel(tmp_path, "1.0", {MTP: (old, new)})
    assert list(failures_or_crashes(DraftConfig(str(wheel)), STATES)) == [contract] * 2


def test_what_a_release_lacks_is_a_hook_that_was_not_found(tmp_path):
    subject = DraftDecode(str(tiny_wheel(tmp_path, "1.0")), worker="v1")
    assert [(hook.name, hook.found) for hook in subject.hooks()] == [("EAGLEWorker", False)]
    with pytest.raises(LackingPartError, match=r"sglang 1\.0 has no EAGLEWorker"):
        subject.run(named("eagle_padded"), None)


def test_a_module_that_cannot_be_imported_is_said(tmp_path):
    wheel = tiny_wheel(tmp_path, "1.0", {WORKER: ("import torch\n", "raise OSError('no device')\n")})
    with pytest.raises(WheelImportError, match=r"eagle_worker_v2 cannot be imported whole: OSError: no device"):
        DraftDecode(str(wheel))


def test_wheels_of_others_and_unknown_workers_are_refused(tmp_path):
    with pytest.raises(ValueError, match="invalid setting worker='v3': expected v2 or v1"):
        DraftDecode(str(tiny_wheel(tmp_path, "1.0")), worker="v3")
    with pytest.raises(ValueError, match="invalid setting stage='verified': expected one of prefill; verify; verify, "):
        EagleExtend(str(tiny_wheel(tmp_path, "1.0")), stage="verified")
    with pytest.raises(WheelError, match="expected a file that is there"):
        DraftDecode(str(tmp_path / "sglang-9.9-py3-none-any.whl"))
