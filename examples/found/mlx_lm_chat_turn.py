"""mlx-lm 0.32.2: the server answers the second turn of a chat otherwise if it has a draft model.

    pip install mlx-lm                        # on Linux with 'mlx[cpu]'
    python examples/found/mlx_lm_chat_turn.py

`_serve_single` (mlx_lm/server.py:1132, :1145) keeps the cache under the prompt and all tokens of the answer. Plain
`generate_step` has run the last of them already, `speculative_generate_step` has not: the cache is a token short, and
the next turn goes on one position early, without that token. With --kv-bits (`kv_bits` below) the cache that is kept
is the one from before the first round, since `model_cache` is a copy of the caller's list (generate.py:539).
"""

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.models.cache import LRUPromptCache, make_prompt_cache
from mlx_lm.models.llama import Model, ModelArgs

SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2, "head_dim": 32, "vocab_size": 64}
SIZES |= {"tie_word_embeddings": False}


def model(seed, **more):
    """Return a Llama of random weights; with another seed than 0 they are a little other ones."""
    made = Model(ModelArgs(model_type="llama", num_hidden_layers=2, rms_norm_eps=1e-5, **SIZES, **more))
    mx.random.seed(0)
    same = tree_map(lambda one: mx.random.normal(one.shape), made.parameters())
    mx.random.seed(seed)
    made.update(tree_map(lambda one: 0.3 * one + 0.2 * bool(seed) * mx.random.normal(one.shape), same))
    return made


target, draft = model(0), model(1)


def plain(tokens, cache, **more):
    return [token for token, _ in generate_step(mx.array(tokens), target, max_tokens=9, prompt_cache=cache, **more)]


def drafted(tokens, cache, **more):
    steps = speculative_generate_step(mx.array(tokens), target, draft, max_tokens=9, prompt_cache=cache, **more)
    return [token for token, *_ in steps]


def chat(name, decode, models, **more):
    """Answer two turns as the server does."""
    kept, known = LRUPromptCache(), []
    for turn in ([5, 1, 9, 3, 7, 2], [8, 4, 6], [11, 13]):
        known = known + turn
        cache, rest = kept.fetch_nearest_cache("model", known)
        cache = cache or [layer for one in models for layer in make_prompt_cache(one)]
        answer, right = decode(rest, cache, **more), plain(known, make_prompt_cache(target), **more)
        known = known + answer
        kept.insert_cache("model", known, cache)
        print(f"{name}: {'right' if answer == right else f'{answer}, should be {right}'};", end=" ")
        print(f"a cache of {cache[0].offset} tokens is kept for {len(known)}")


QUANTIZED = {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 0}
chat("plain", plain, [target])
chat("with a draft", drafted, [target, draft])
chat("with a draft, 8 bits", drafted, [target, draft], **QUANTIZED)
