"""Train a tiny Llama and an EAGLE head for it on made-up text, so that drafts are accepted for a reason.

    pip install -e '.[test]'
    python examples/train_tiny.py .draftproof/trained
    draftproof audit --model .draftproof/trained/target --draft eagle --draft-model .draftproof/trained/head \
        --prompts .draftproof/trained/prompts.jsonl

In the text most tokens are a fixed function of the token LAG places before; after a token of `BRANCHES` the next one
depends on the last two. So a draft has to look at the right position, and at the right hidden state, to be accepted.
Heads have 32 components, which attention on CPUs takes elsewhere, too. Everything follows from the seed.

Shapes: `B` texts of a batch, `n` tokens of each, `D` hidden size, `V` vocabulary.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, smooth_l1_loss

try:
    from transformers import LlamaConfig, LlamaForCausalLM
except ImportError as error:
    sys.exit(f"{error}: this example trains models of transformers (pip install 'transformers>=5.17')")

VOCAB, LAG, NOISE = 64, 12, 0.03
BRANCHES = range(0, VOCAB, 5)
BATCH, LENGTH = 32, 72
PAUSE = 10.0
"""Seconds between two lines of progress."""
SIZES = {"vocab_size": VOCAB, "hidden_size": 96, "intermediate_size": 192, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 32, "max_position_embeddings": 1024}


class Text:
    """The source of texts: how a token follows from those before, but for a share of random ones."""

    def __init__(self, seed: int) -> None:
        self._draws = np.random.default_rng(seed)
        self._echo = self._draws.permutation(VOCAB)
        self._after = self._draws.integers(0, VOCAB, (VOCAB, 8))

    def draw(self, count: int, length: int) -> Tensor:
        """Return texts [count, length]."""
        tokens = self._draws.integers(0, VOCAB, (count, length))
        is_random = self._draws.random((count, length)) < NOISE
        for at in range(LAG, length):
            last, before = tokens[:, at - 1], tokens[:, at - 2]
            branches = np.isin(last, BRANCHES)
            rule = np.where(branches, self._after[last, before % 8], self._echo[tokens[:, at - LAG]])
            tokens[:, at] = np.where(is_random[:, at], tokens[:, at], rule)
        return torch.from_numpy(tokens)


class Head(nn.Module):
    """An EAGLE-1 head: a decoder layer without input norm over fc(embedding, hidden).

    Embedding and logits are the target's.
    """

    def __init__(self, target: LlamaForCausalLM) -> None:
        super().__init__()
        d = target.config.hidden_size
        self.fc = nn.Linear(2 * d, d, bias=False)
        self.layers = LlamaForCausalLM(LlamaConfig(**_fields(layers=1))).model.layers
        self.layers[0].input_layernorm = nn.Identity()
        self._shared = [target]  # in a list: its parameters are not the head's

    def forward(self, tokens: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return states and logits of entries: tokens [B, n] after positions 0 .. n-1, whose states are [B, n, D]."""
        target, positions = self._shared[0], torch.arange(tokens.shape[1])[None]
        x = self.fc(torch.cat((target.model.embed_tokens(tokens), hidden), dim=-1))
        angles = target.model.rotary_emb(x, positions)
        x = self.layers[0](x, position_ids=positions, position_embeddings=angles)
        x = x if isinstance(x, Tensor) else x[0]
        return x, target.lm_head(x)


def train_target(text: Text, steps: int) -> LlamaForCausalLM:
    """Return a target after so many steps of next-token prediction."""
    target = LlamaForCausalLM(LlamaConfig(**_fields()))
    # Which side of the final norm a state is from shows.
    nn.init.uniform_(target.model.norm.weight, 0.2, 3.0)
    for tokens in _steps("target", target, text, steps):
        logits = target(tokens[:, :-1]).logits
        cross_entropy(logits[:, LAG:].flatten(0, 1), tokens[:, LAG + 1 :].flatten()).backward()
    return target.eval()


def train_head(target: LlamaForCausalLM, text: Text, steps: int) -> Head:
    """Return a head that was trained on the target's states, and on its own: as its draft steps see them."""
    head = Head(target)
    for tokens in _steps("head", head, text, steps):
        with torch.no_grad():
            hidden = target.model(tokens).last_hidden_state
            choices = target.lm_head(hidden).argmax(-1)
        given, loss = hidden[:, :-1], torch.zeros(())
        for _ in range(2):
            states, logits = head(tokens[:, 1:], given)
            loss = loss + cross_entropy(logits[:, LAG:].flatten(0, 1), choices[:, LAG + 1 :].flatten())
            loss = loss + smooth_l1_loss(states, hidden[:, 1:])
            given = torch.cat((hidden[:, :1], states[:, :-1]), dim=1)
        loss.backward()
    return head.eval()


def _steps(name: str, model: nn.Module, text: Text, steps: int):
    """Yield a batch of texts a step; what its user adds to the gradients moves the model. Print how far it is."""
    told = time.monotonic()
    print(f"training the {name}: {steps} steps", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=max(steps, 2))
    for step in range(steps):
        if time.monotonic() - told > PAUSE:
            told = time.monotonic()
            print(f"training the {name}: {step} of {steps} steps", flush=True)
        optimizer.zero_grad()
        yield text.draw(BATCH, LENGTH)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


def _fields(layers: int = SIZES["num_hidden_layers"]) -> dict[str, object]:
    rope = {"rope_type": "default", "rope_theta": 500.0}
    none = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    return {**SIZES, **none, "num_hidden_layers": layers, "rope_parameters": rope, "tie_word_embeddings": False}


def write_head(head: Head, target: Path, directory: Path) -> None:
    """Write a head as SafeAILab does: the target's config.json with one layer, and the tensors by their names."""
    directory.mkdir(parents=True, exist_ok=True)
    config = json.loads((target / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}, indent=2) + "\n")
    save_file({name: x.contiguous() for name, x in head.state_dict().items()}, directory / "model.safetensors")


def write(
    directory: Path,
    seed: int = 0,
    target_steps: Annotated[int, typer.Option(min=1)] = 350,
    head_steps: Annotated[int, typer.Option(min=1)] = 205,
    prompts: Annotated[int, typer.Option(min=1)] = 40,
) -> None:
    """Train both and write DIRECTORY/target, DIRECTORY/head and DIRECTORY/prompts.jsonl."""
    torch.manual_seed(seed)
    text = Text(seed)
    target = train_target(text, target_steps)
    target.save_pretrained(directory / "target")
    write_head(train_head(target.requires_grad_(False), text, head_steps), directory / "target", directory / "head")
    lines = [json.dumps({"prompt": tokens}) for tokens in text.draw(prompts, 2 * LAG).tolist()]
    (directory / "prompts.jsonl").write_text("\n".join(lines) + "\n")
    paths = {"--model": "target", "--draft-model": "head", "--prompts": "prompts.jsonl"}
    options = [word for option, name in paths.items() for word in (option, str(directory / name))]
    print(f"wrote {directory}. Next: {shlex.join(['draftproof', 'audit', '--draft', 'eagle', *options, '--mistakes'])}")


if __name__ == "__main__":
    typer.run(write)
