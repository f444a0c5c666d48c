"""mlx-lm 0.32.2: with a draft model, texts of a model with a sliding window are other texts once the window is full.

    pip install mlx-lm                        # on Linux with 'mlx[cpu]'
    python examples/found/mlx_lm_sliding_window.py

`trim_prompt_cache` (mlx_lm/models/cache.py:136) does nothing, and says nothing, where a cache cannot be trimmed, and a
`RotatingKVCache` that is full cannot (`is_trimmable`, :545). `speculative_generate_step` asks before the prompt only
(generate.py:542), so rejected drafts stay in the cache for good.
"""

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.models.llama import Model, ModelArgs

SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2, "head_dim": 32, "vocab_size": 64}
SIZES |= {"tie_word_embeddings": False}
KINDS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 16}
MOST = 24


def model(seed, **more):
    """Return a Llama of random weights; with another seed than 0 they are a little other ones."""
    made = Model(ModelArgs(model_type="llama", num_hidden_layers=2, rms_norm_eps=1e-5, **SIZES, **more))
    mx.random.seed(0)
    same = tree_map(lambda one: mx.random.normal(one.shape), made.parameters())
    mx.random.seed(seed)
    made.update(tree_map(lambda one: 0.3 * one + 0.06 * bool(seed) * mx.random.normal(one.shape), same))
    return made


def show(name, target, draft):
    prompt = mx.array([5, 1, 9, 3, 7, 2])
    alone = [token for token, _ in generate_step(prompt, target, max_tokens=MOST)]
    drafted = [token for token, *_ in speculative_generate_step(prompt, target, draft, max_tokens=MOST)]
    same = next((i for i, (one, other) in enumerate(zip(alone, drafted, strict=True)) if one != other), MOST)
    print(f"{name}: {same} of {MOST} tokens are those of plain decoding")


show("no window", model(0), model(1))
show("a window of 16, prompt of 6", model(0, **KINDS), model(1))
