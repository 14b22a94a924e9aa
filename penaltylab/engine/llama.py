"""A real decoder as the forward: Llama's architecture, random weights, a KV cache by request slot.

For load on real GPUs. Its forward takes the time that it takes: `forward_ms`, `draft_share`, `extend_share` and
`accept_rate` are of the Markov model. Its draft is its own first layer, so how often that agrees is what it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from penaltylab.engine.models import ForwardBatch


@dataclass(frozen=True)
class LlamaShape:
    """The shape of a model; `tiny` runs anywhere, the others are those of Llama 3.2 1B and 3.1 8B."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    rope_theta: float = 500_000.0

    @property
    def head_dim(self) -> int:
        """Columns a head."""
        return self.hidden // self.heads


SHAPES = {
    "tiny": LlamaShape(hidden=64, intermediate=128, layers=2, heads=4, kv_heads=2),
    "1b": LlamaShape(hidden=2048, intermediate=8192, layers=16, heads=32, kv_heads=8),
    "8b": LlamaShape(hidden=4096, intermediate=14336, layers=32, heads=32, kv_heads=8),
}


class Llama:
    """Weights, keys and values (layers, 2, slots, longest, kv_heads, head_dim), in bfloat16 on a GPU, else float32."""

    def __init__(
        self, shape: LlamaShape, vocab_size: int, seed: int, slots: int, longest: int, device: torch.device
    ) -> None:
        self.shape = shape
        self.dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        generator = torch.Generator(device=device).manual_seed(seed)

        def weight(rows: int, columns: int) -> torch.Tensor:
            values = torch.empty((rows, columns), dtype=self.dtype, device=device)
            return values.normal_(std=columns**-0.5, generator=generator)

        queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.embedding = weight(vocab_size, shape.hidden)
        self.head = weight(vocab_size, shape.hidden)
        self.layers = [
            {
                "qkv": weight(queries + 2 * keys, shape.hidden),
                "out": weight(shape.hidden, queries),
                "gate_up": weight(2 * shape.intermediate, shape.hidden),
                "down": weight(shape.hidden, shape.intermediate),
            }
            for _ in range(shape.layers)
        ]
        cache = (shape.layers, 2, slots, longest, shape.kv_heads, shape.head_dim)
        self.cache = torch.zeros(cache, dtype=self.dtype, device=device)
        half = torch.arange(0, shape.head_dim, 2, device=device) / shape.head_dim
        self.frequencies = shape.rope_theta**-half

    def logits(self, batch: ForwardBatch, at: torch.Tensor | None = None, layers: int | None = None) -> torch.Tensor:
        """Logits (batch, n, vocab), float32, after each input token; with `at` (batch,), (batch, 1, vocab) after one.

        `layers` stops after so many of them. Keys and values of the input tokens go into the cache.
        """
        angles = batch.positions.unsqueeze(-1) * self.frequencies
        rotation = torch.cos(angles).unsqueeze(2), torch.sin(angles).unsqueeze(2)
        past = torch.arange(batch.context, device=batch.positions.device)
        mask = (past <= batch.positions.unsqueeze(-1)).unsqueeze(1)
        hidden = self.embedding[batch.input_ids]
        for index, layer in enumerate(self.layers[:layers]):
            hidden = hidden + self._attention(layer, self.cache[index], _norm(hidden), batch, rotation, mask)
            gate, up = functional.linear(_norm(hidden), layer["gate_up"]).chunk(2, dim=-1)
            hidden = hidden + functional.linear(functional.silu(gate) * up, layer["down"])
        if at is not None:
            hidden = hidden.gather(1, at.view(-1, 1, 1).expand(-1, 1, hidden.shape[-1]))
        return functional.linear(_norm(hidden), self.head).float()

    def propose(self, batch: ForwardBatch, k: int) -> torch.Tensor:
        """k proposals (batch, k) after the input tokens (batch, 1), by the first layer alone.

        Its keys and values are those that the verify pass writes again, so the draft needs no cache of its own.
        """
        tokens = []
        for _ in range(k):
            tokens.append(self.logits(batch, layers=1).argmax(-1))
            batch = batch.following(tokens[-1])
        return torch.cat(tokens, dim=1)

    def _attention(
        self,
        layer: dict[str, torch.Tensor],
        cache: torch.Tensor,
        hidden: torch.Tensor,
        batch: ForwardBatch,
        rotation: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor,
    ) -> torch.Tensor:
        shape = self.shape
        heads = functional.linear(hidden, layer["qkv"]).unflatten(-1, (-1, shape.head_dim))
        query, key, value = heads.split([shape.heads, shape.kv_heads, shape.kv_heads], dim=2)
        rows = batch.slots.unsqueeze(1)
        cache[0][rows, batch.positions] = _rotate(key, rotation)
        cache[1][rows, batch.positions] = value
        keys, values = (cache[kind][batch.slots, : batch.context].transpose(1, 2) for kind in (0, 1))
        query = _rotate(query, rotation).transpose(1, 2)
        out = functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=True)
        return functional.linear(out.transpose(1, 2).flatten(2), layer["out"])


def _norm(hidden: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(hidden, hidden.shape[-1:], eps=1e-5)


def _rotate(heads: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rotary position embedding of `heads` (batch, n, heads, head_dim)."""
    cosine, sine = rotation
    first, second = heads.float().chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1).to(heads.dtype)
