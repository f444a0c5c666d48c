"""openvino-genai 2026.4.1: the drafts of a request's last round are not in the counters of speculative decoding.

    pip install openvino-genai
    python examples/found/openvino_genai_last_round.py IR SMALL_IR

IR and SMALL_IR are a target and its draft as OpenVINO reads them. `m_batch_sizes` has the tokens of each pass of the
target, so that a text of N tokens in R passes has N - R accepted drafts; `get_num_draft_tokens` and what follows from
it say less, and a text of one such round has no rate at all.
"""

import sys

import numpy as np

try:
    import openvino
    import openvino_genai
except ImportError as error:
    sys.exit(f"{error}: this example is about openvino-genai (pip install openvino-genai)")

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
target, draft = sys.argv[1:]
small = openvino_genai.draft_model(draft, "CPU", **EXACT)
pipeline = openvino_genai.LLMPipeline(target, "CPU", draft_model=small, **EXACT)
ids = np.array([[45, 24, 43, 53, 53, 53, 14, 17, 60, 3, 7, 0, 36, 30, 11, 5]], dtype=np.int64)
prompt = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
for most in (3, 5, 7, 9, 12, 20, 40):
    config = openvino_genai.GenerationConfig(max_new_tokens=most, num_assistant_tokens=4, do_sample=False)
    config.ignore_eos = True
    told = pipeline.generate(prompt, config).extended_perf_metrics
    passes = [*told.main_model_metrics.raw_metrics.m_batch_sizes]
    drafts = f"{told.get_num_accepted_tokens()} of {told.get_num_draft_tokens()} drafts accepted"
    print(f"passes of {passes} tokens, {sum(passes) - len(passes)} accepted; counters: {drafts}", end="")
    print(f", {told.get_draft_acceptance_rate():.2f}")
