"""transformers 5.23.0: an assistant does not see the tokens of a prompt that are the pad token, the target does.

    pip install 'transformers>=5.17'
    python examples/found/transformers_assistant_mask.py

`generate` drops an attention mask of ones (generation/utils.py:2904, "drop the mask altogether if it's all 1s") before
it makes the assistant's arguments of what is left (candidate_generator.py:114). The assistant's own `generate` then
makes a mask of the pad tokens (utils.py:940). The text stays the same; fewer drafts are accepted.
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2}
torch.manual_seed(0)
target = LlamaForCausalLM(LlamaConfig(**SIZES, initializer_range=0.5)).eval()
masks = []


def seen(_module, _args, given):
    mask = given.get("attention_mask")
    masks.append("none" if mask is None else mask[0].tolist())


assistant = LlamaForCausalLM(target.config).eval()
assistant.load_state_dict(target.state_dict())
assistant.register_forward_pre_hook(seen, with_kwargs=True)
prompt = torch.tensor([[5, 1, 0, 9, 0, 7]])
for pad in (0, 63):
    masks.clear()
    ends = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": 62, "pad_token_id": pad}
    target.generate(prompt, attention_mask=torch.ones_like(prompt), assistant_model=assistant, **ends)
    print(f"prompt {prompt[0].tolist()}, a mask of ones, pad token {pad}: the assistant's mask is {masks[0]}")
