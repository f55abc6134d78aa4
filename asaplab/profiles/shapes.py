"""Sizes of the models that profiles know by name: what costs are counted from (each from the model's config.json)."""

from __future__ import annotations

from dataclasses import dataclass

from asaplab.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One model in Table 1's words. Operations are of one layer and all ranks together, a multiply-add is two."""

    name: str
    L: int
    dense: int  # leading layers without experts
    H: int
    K: int
    E_total: int
    I: int  # noqa: E741  intermediate size of an expert
    dense_I: int
    shared_I: int  # 0: no shared expert
    heads: int
    kv_heads: int
    qk_dim: int  # query and key dimensions a head
    v_dim: int
    q_rank: int = 0  # MLA: ranks of the query and key-value latents; 0: grouped-query attention
    kv_rank: int = 0
    rope: int = 0  # MLA: rotated dimensions shared by all heads
    indexer: int = 0  # V3.2: heads times dimensions of the lightning indexer
    vocab: int = 129280

    @property
    def attention_weights(self) -> float:
        """Projections of one attention layer, and its router."""
        if self.kv_rank:
            query = self.H * self.q_rank + self.q_rank * self.heads * self.qk_dim
            nope = self.qk_dim - self.rope
            key_value = self.H * (self.kv_rank + self.rope) + self.kv_rank * self.heads * (nope + self.v_dim)
            weights = query + key_value + self.heads * self.v_dim * self.H
        else:
            weights = self.H * (self.heads + self.kv_heads) * (self.qk_dim + self.v_dim)
        return float(weights + self.H * self.E_total)

    @property
    def attention_token(self) -> float:
        """Operations of a token: projections, router and shared expert."""
        return 2.0 * self.attention_weights + 6.0 * self.H * self.shared_I

    @property
    def attention_square(self) -> float:
        """Operations of a squared token of a causal prompt: scores and values (half the square), indexer's scores."""
        return float(self.heads * (self.qk_dim + self.v_dim) + self.indexer)

    @property
    def dense_token(self) -> float:
        """Operations of a token in a dense layer, beyond those of the shared expert."""
        return 6.0 * self.H * (self.dense_I - self.shared_I)

    @property
    def expert_weights(self) -> float:
        """Weights of one routed expert in one layer."""
        return 3.0 * self.H * self.I

    @property
    def expert_row(self) -> float:
        """Operations of one (token, expert) row."""
        return 2.0 * self.expert_weights

    @property
    def role_weights(self) -> float:
        """Weights of the attention role, all ranks together: attention, shared and dense layers, embedding and head."""
        moe_layers = self.L - self.dense
        feed_forward = 3.0 * self.H * (moe_layers * self.shared_I + self.dense * self.dense_I)
        return self.L * self.attention_weights + feed_forward + 2.0 * self.vocab * self.H

    @property
    def kv_elements_per_token(self) -> float:
        """Elements of the KV cache, all layers (MLA keeps its latent)."""
        width = self.kv_rank + self.rope if self.kv_rank else self.kv_heads * (self.qk_dim + self.v_dim)
        return float(self.L * width)


_DEEPSEEK = {"L": 61, "dense": 3, "H": 7168, "K": 8, "E_total": 256, "I": 2048, "dense_I": 18432, "shared_I": 2048}
_MLA = {"heads": 128, "kv_heads": 128, "qk_dim": 192, "v_dim": 128, "q_rank": 1536, "kv_rank": 512, "rope": 64}
_TINY = {
    "L": 3, "dense": 1, "H": 64, "K": 4, "E_total": 16, "I": 32, "dense_I": 128, "shared_I": 32, "heads": 4,
    "kv_heads": 4, "qk_dim": 32, "v_dim": 16, "q_rank": 32, "kv_rank": 32, "rope": 16, "vocab": 512,
}  # fmt: skip
MODELS: dict[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape(name="deepseek-v3.2", **_DEEPSEEK, **_MLA, indexer=64 * 128),  # type: ignore[arg-type]
        Shape(name="deepseek-v3", **_DEEPSEEK, **_MLA),  # type: ignore[arg-type]
        Shape(
            name="kimi-k2",
            **(_DEEPSEEK | _MLA | {"dense": 1, "E_total": 384, "heads": 64, "kv_heads": 64}),  # type: ignore[arg-type]
            vocab=163840,
        ),
        Shape(
            name="qwen3-235b", L=94, dense=0, H=4096, K=8, E_total=128, I=1536, dense_I=12288, shared_I=0,
            heads=64, kv_heads=4, qk_dim=128, v_dim=128, vocab=151936,
        ),
        Shape(
            name="qwen3-30b", L=48, dense=0, H=2048, K=8, E_total=128, I=768, dense_I=6144, shared_I=0,
            heads=32, kv_heads=4, qk_dim=128, v_dim=128, vocab=151936,
        ),
        Shape(
            name="glm-4.5", L=92, dense=3, H=5120, K=8, E_total=160, I=1536, dense_I=12288, shared_I=1536,
            heads=96, kv_heads=8, qk_dim=128, v_dim=128, vocab=151552,
        ),
        Shape(
            name="gpt-oss-120b", L=36, dense=0, H=2880, K=4, E_total=128, I=2880, dense_I=2880, shared_I=0,
            heads=64, kv_heads=8, qk_dim=64, v_dim=64, vocab=201088,
        ),
        # the checkpoints that asaplab writes itself: the twin of what the engine runs on this machine
        Shape(
            name="bench-moe", L=4, dense=0, H=1024, K=8, E_total=32, I=256, dense_I=2048, shared_I=0,
            heads=16, kv_heads=4, qk_dim=128, v_dim=128, vocab=8192,
        ),
        Shape(
            name="tiny-qwen3-moe", L=3, dense=0, H=64, K=4, E_total=16, I=32, dense_I=128, shared_I=0,
            heads=4, kv_heads=2, qk_dim=32, v_dim=32, vocab=512,
        ),
        Shape(name="tiny-deepseek-v3", **_TINY),  # type: ignore[arg-type]
        Shape(name="tiny-deepseek-v32", **_TINY, indexer=8 * 32),  # type: ignore[arg-type]
    )
}  # fmt: skip


def model_of(name: str) -> Shape:
    """The model of that name.

    Raises:
        InputError: no model has the name.
    """
    if name not in MODELS:
        raise InputError(f"there is no model {name!r} for the twin; the models are {', '.join(MODELS)}")
    return MODELS[name]
