"""Check an engine that tells counts alone: openvino-genai's pipeline with a draft model, round by round.

    pip install openvino-genai
    PYTHONPATH=examples draftproof check --subject openvino_genai_engine:OpenVinoGenAi --python ENV/bin/python \
        --model TARGET --draft standalone --draft-model SMALL --set target_ir=IR --set draft_ir=SMALL_IR

IR and SMALL_IR are the same checkpoints as OpenVINO reads them: folders with `openvino_model.xml` and a tokenizer, as
optimum-intel exports them, or `LLMPipeline(.., enable_save_ov_model=True)` of a GGUF file. The pipeline says how many
tokens each of its passes gave (`m_batch_sizes`). Its counters are not reported: see docs/found.md. A KV cache is of 8
bits by default, which is another precision. Seen on openvino-genai 2026.4.1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice

import numpy as np

try:
    import openvino
    import openvino_genai
except ImportError as error:
    sys.exit(f"{error}: this example is about openvino-genai (pip install openvino-genai)")

from draftproof.subject import Key, Limits, Observation, Scenario, Script, Subject, Trace

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}


class OpenVinoGenAi(Subject):
    """One request after the other, with as many drafts as the scenario has at most."""

    name = "openvino-genai"
    packages = ("openvino-genai", "openvino")
    requires = ("openvino_genai",)
    limits = Limits(
        models=("checkpoint",),
        drafts=("standalone",),
        dtypes=("float32",),
        arrivals="serial",
        steering="none",
        variants=(),
        finish="token",
    )

    def __init__(self, target_ir: str, draft_ir: str) -> None:
        self.folders, self.pipeline = (target_ir, draft_ir), None

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return frozenset({"accept.correct_len", "accept.emitted"})

    def run(self, scenario: Scenario, script: Script) -> Trace:
        if self.pipeline is None:
            target, draft = self.folders
            small = openvino_genai.draft_model(draft, "CPU", **EXACT)
            self.pipeline = openvino_genai.LLMPipeline(target, "CPU", draft_model=small, **EXACT)
        said: list[Observation] = []
        for index, (request, asked) in enumerate(zip(scenario.requests, script.requests, strict=True)):
            most = min(request.budget, scenario.memory.max_len - len(request.prompt))
            for number, emitted in enumerate(self.rounds(request.prompt, most, asked.stop, scenario.steps)):
                said.append(Observation("accept.emitted", Key(index, number), emitted))
                if number:
                    said.append(Observation("accept.correct_len", Key(index, number), len(emitted) - 1))
        return Trace(self.name, self.channels(scenario), tuple(said))

    def rounds(
        self, prompt: tuple[int, ...], most: int, stop: tuple[int, ...], drafts: int
    ) -> Iterator[tuple[int, ...]]:
        """Yield the tokens of each round, the prompt's first."""
        ids = np.array([prompt], dtype=np.int64)
        config = openvino_genai.GenerationConfig(
            max_new_tokens=most, stop_token_ids=set(stop), num_assistant_tokens=drafts, do_sample=False
        )
        config.ignore_eos = not stop
        mask = openvino.Tensor(np.ones_like(ids))
        done = self.pipeline.generate(openvino_genai.TokenizedInputs(openvino.Tensor(ids), mask), config)
        tokens = iter(done.tokens[0])
        for size in done.extended_perf_metrics.main_model_metrics.raw_metrics.m_batch_sizes:
            yield tuple(islice(tokens, size))
