"""mlx-lm 0.32.2: max_tokens=-1, documented as no limit, raises with a draft model.

    pip install mlx-lm                        # on Linux with 'mlx[cpu]'
    python examples/found/mlx_lm_no_limit.py

`num_draft = min(max_tokens - ntoks, num_draft_tokens)` (generate.py:621) is -1, and no token is drafted to concatenate.
"""

from itertools import islice

import mlx.core as mx
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.models.llama import Model, ModelArgs

SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2, "head_dim": 32, "vocab_size": 64}
model = Model(ModelArgs(model_type="llama", num_hidden_layers=2, rms_norm_eps=1e-5, **SIZES))
prompt = mx.array([5, 1, 9])
print("plain:", len([*islice(generate_step(prompt, model, max_tokens=-1), 4)]), "tokens, and more")
try:
    print("drafted:", len([*islice(speculative_generate_step(prompt, model, model, max_tokens=-1), 4)]), "tokens")
except ValueError as error:
    print("drafted:", error)
