"""mlx-lm 0.32.2: a Llama that transformers 5 has saved is read with another rope_theta, and nobody is told.

    pip install mlx-lm                        # on Linux with 'mlx[cpu]'
    python examples/found/mlx_lm_rope_parameters.py

transformers 5 writes `rope_parameters` in place of `rope_theta` and `rope_scaling`. `ModelArgs` of
mlx_lm/models/qwen3.py:30 reads them; that of mlx_lm/models/llama.py does not, nor do those of other models: unknown
fields are left out, and theta is 10000, without scaling.
"""

import importlib

FIELDS = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2, "head_dim": 32, "vocab_size": 64}
FIELDS |= {"num_hidden_layers": 2, "rms_norm_eps": 1e-5, "num_key_value_heads": 2, "tie_word_embeddings": False}
FIELDS |= {"max_position_embeddings": 1024, "attention_bias": False, "mlp_bias": False}
NEW = {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}

for name in ("qwen3", "qwen2", "llama"):
    args = importlib.import_module(f"mlx_lm.models.{name}").ModelArgs.from_dict({"model_type": name, **FIELDS, **NEW})
    print(f"{name}: rope_theta {args.rope_theta}")
