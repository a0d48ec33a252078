"""CALM in plain PyTorch: the numerical reference for the C++ library, and its competitor in the benchmarks.

Every source of randomness is an explicit argument, so results depend only on the inputs.
Parameters have the names of the published Hugging Face checkpoints, so `state_dict()` is
the checkpoint layout that the C++ library must read and write.

Checked against the published PyTorch code with the same weights and the same noise, for K = 1, 2 and 4:
autoencoder, backbone, energy, flow and diffusion heads, losses, gradients and samples agree to fp32 rounding.

Shapes: B batch, P positions (patches), K patch size, D hidden, L latent, V vocabulary,
N model samples, M target samples.
"""
from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn


# ---------------------------------------------------------------- configurations

@dataclass
class AutoencoderConfig:
    vocab_size: int = 32000
    patch_size: int = 4
    hidden_size: int = 512
    intermediate_size: int = 1280
    num_encoder_layers: int = 2
    num_decoder_layers: int = 2
    latent_size: int = 128
    rms_norm_eps: float = 1e-6
    dropout: float = 0.15
    kl_clamp: float = 0.5
    kl_weight: float = 1e-3


@dataclass
class CalmConfig:
    ae: AutoencoderConfig = field(default_factory=AutoencoderConfig)
    head: str = "energy"                 # energy | diffusion | flow
    vocab_size: int = 32000
    hidden_size: int = 768
    intermediate_size: int = 2048
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    num_key_value_heads: int = 12
    num_mlp_layers: int = 4
    noise_size: int = 64
    num_samples: int = 8                 # N
    num_target_samples: int = 100        # M
    beta: float = 1.0
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0

    @property
    def patch_size(self) -> int:
        return self.ae.patch_size


# ---------------------------------------------------------------- shared layers

def wide(x: Tensor) -> Tensor:
    """Casts to at least fp32, the precision of norms, tables and losses."""
    return x if x.dtype == torch.float64 else x.float()


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.rsqrt(wide(x).pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * (wide(x) * scale).to(x.dtype)


class SwiGLU(nn.Module):
    def __init__(self, size: int, inner: int):
        super().__init__()
        self.gate_proj = nn.Linear(size, inner, bias=False)
        self.up_proj = nn.Linear(size, inner, bias=False)
        self.down_proj = nn.Linear(inner, size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


# ---------------------------------------------------------------- autoencoder

class AELayer(nn.Module):
    def __init__(self, c: AutoencoderConfig):
        super().__init__()
        self.mlp = SwiGLU(c.hidden_size, c.intermediate_size)
        self.layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mlp(self.layernorm(x))


class Encoder(nn.Module):
    """[B, P*K] tokens -> [B, P, 2L]: mean and log standard deviation of the posterior."""

    def __init__(self, c: AutoencoderConfig):
        super().__init__()
        self.c = c
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.encoder_layers = nn.ModuleList(AELayer(c) for _ in range(c.num_encoder_layers))
        self.squeeze_layer = nn.Linear(c.patch_size * c.hidden_size, c.hidden_size)
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.hidden_to_latent = nn.Linear(c.hidden_size, 2 * c.latent_size)

    def forward(self, tokens: Tensor) -> Tensor:
        half = self.c.num_encoder_layers // 2
        x = self.embed_tokens(tokens)                               # [B, P*K, D]
        for layer in self.encoder_layers[:half]:
            x = layer(x)
        x = x.reshape(x.shape[0], -1, self.c.patch_size * self.c.hidden_size)
        x = self.squeeze_layer(x)                                   # [B, P, D]
        for layer in self.encoder_layers[half:2 * half]:
            x = layer(x)
        return self.hidden_to_latent(self.norm(x))


class Decoder(nn.Module):
    """[B, P, L] latents -> [B, P*K, V] logits; the projection is the encoder's embedding."""

    def __init__(self, c: AutoencoderConfig):
        super().__init__()
        self.c = c
        self.latent_to_hidden = nn.Linear(c.latent_size, c.hidden_size)
        self.decoder_layers = nn.ModuleList(AELayer(c) for _ in range(c.num_decoder_layers))
        self.expand_layer = nn.Linear(c.hidden_size, c.patch_size * c.hidden_size)
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps)

    def forward(self, z: Tensor, embedding: Tensor) -> Tensor:
        half = self.c.num_decoder_layers // 2
        x = self.latent_to_hidden(z)
        for layer in self.decoder_layers[:half]:
            x = layer(x)
        x = self.expand_layer(x).reshape(z.shape[0], -1, self.c.hidden_size)
        for layer in self.decoder_layers[half:2 * half]:
            x = layer(x)
        return F.linear(self.norm(x), embedding)


class Autoencoder(nn.Module):
    def __init__(self, c: AutoencoderConfig):
        super().__init__()
        self.c = c
        self.encoder = Encoder(c)
        self.decoder = Decoder(c)

    def posterior(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """[B, P*K] tokens -> mean, log_std, each [B, P, L]."""
        mean, log_std = self.encoder(tokens).chunk(2, dim=-1)
        return mean, log_std

    def decode(self, z: Tensor) -> Tensor:
        return self.decoder(z, self.encoder.embed_tokens.weight)

    def training_loss(self, tokens: Tensor, eps: Tensor, keep_token: Tensor | None = None,
                      keep_latent: Tensor | None = None) -> dict[str, Tensor]:
        """VAE loss of [R, K] patches.

        eps [R, 1, L] standard normal; keep_token [R, K] bool, a dropped token becomes id 0;
        keep_latent [R, 1, L] bool, kept components are scaled by 1/(1-dropout).
        """
        shown = tokens if keep_token is None else tokens * keep_token.long()
        mean, log_std = self.posterior(shown)
        std = log_std.exp()
        z = mean + eps * std
        if keep_latent is not None:
            z = z * keep_latent / (1.0 - self.c.dropout)
        kl = 0.5 * (mean.pow(2) + std.pow(2) - 1 - 2 * log_std)
        kl = kl.clamp(min=self.c.kl_clamp).sum(-1).mean()
        logits = wide(self.decode(z))
        ce = F.cross_entropy(logits.reshape(-1, self.c.vocab_size), tokens.reshape(-1))
        return {"loss": ce * self.c.patch_size + self.c.kl_weight * kl,
                "cross_entropy": ce, "kl": kl, "z": z, "logits": logits}


# ---------------------------------------------------------------- transformer

def rope_tables(length: int, head_dim: int, theta: float, offset: int = 0) -> tuple[Tensor, Tensor]:
    inv_freq = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angle = torch.outer(torch.arange(offset, offset + length, dtype=torch.float32), inv_freq)
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos(), angle.sin()


def rotate_half(x: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


class Attention(nn.Module):
    def __init__(self, c: CalmConfig):
        super().__init__()
        self.heads, self.kv_heads = c.num_attention_heads, c.num_key_value_heads
        self.head_dim = c.hidden_size // c.num_attention_heads
        self.q_proj = nn.Linear(c.hidden_size, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(c.hidden_size, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(c.hidden_size, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, c.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor,
                past: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        B, T, _ = x.shape
        q = self.q_proj(x).view(B, T, self.heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(B, T, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(B, T, self.kv_heads, self.head_dim).transpose(1, 2)
        q = q * cos + rotate_half(q) * sin
        k = k * cos + rotate_half(k) * sin
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        cache = (k, v)
        rep = self.heads // self.kv_heads
        k, v = k.repeat_interleave(rep, 1), v.repeat_interleave(rep, 1)
        S = k.shape[2]
        if hasattr(F, "scaled_dot_product_attention") and past is None:
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = torch.ones(T, S, dtype=torch.bool, device=x.device).tril(S - T)
            w = (q @ k.transpose(-1, -2)) / math.sqrt(self.head_dim)
            o = w.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        return self.o_proj(o.transpose(1, 2).reshape(B, T, -1)), cache


class Block(nn.Module):
    def __init__(self, c: CalmConfig):
        super().__init__()
        self.self_attn = Attention(c)
        self.mlp = SwiGLU(c.hidden_size, c.intermediate_size)
        self.input_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)

    def forward(self, x, cos, sin, past=None):
        a, cache = self.self_attn(self.input_layernorm(x), cos, sin, past)
        x = x + a
        return x + self.mlp(self.post_attention_layernorm(x)), cache


class Llama(nn.Module):
    def __init__(self, c: CalmConfig):
        super().__init__()
        self.c = c
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Block(c) for _ in range(c.num_hidden_layers))
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps)

    def forward(self, x: Tensor, caches=None):
        offset = 0 if caches is None else caches[0][0].shape[2]
        cos, sin = rope_tables(x.shape[1], self.c.hidden_size // self.c.num_attention_heads,
                               self.c.rope_theta, offset)
        cos, sin = cos.to(x), sin.to(x)
        out = []
        for i, layer in enumerate(self.layers):
            x, cache = layer(x, cos, sin, None if caches is None else caches[i])
            out.append(cache)
        return self.norm(x), out


# ---------------------------------------------------------------- energy head

class EnergyBlock(nn.Module):
    def __init__(self, d: int):
        super().__init__()
        self.in_ln = nn.LayerNorm(d, eps=1e-6)
        self.linears = nn.Sequential(nn.Linear(2 * d, d), nn.SiLU(), nn.Linear(d, d), nn.SiLU(),
                                     nn.Linear(d, 2 * d))
        self.down_proj = nn.Linear(d, d)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        gate, up = self.linears(torch.cat((self.in_ln(x), y), -1)).chunk(2, -1)
        return x + self.down_proj(F.silu(gate) * up)


class EnergyFinal(nn.Module):
    def __init__(self, d: int, out: int):
        super().__init__()
        self.in_ln = nn.LayerNorm(d, eps=1e-6)
        self.linears = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, out))

    def forward(self, x):
        return self.linears(self.in_ln(x))


class EnergyHead(nn.Module):
    """One-step sampler: hidden [..., D] and noise [..., noise_size] in U[-1/2, 1/2) -> [..., L]."""

    def __init__(self, c: CalmConfig):
        super().__init__()
        d = c.hidden_size
        self.noise_embd = nn.Linear(c.noise_size, d)
        self.hidden_embd = nn.Linear(d, d)
        self.norm_hidden = nn.LayerNorm(d, eps=1e-6)
        self.norm_noise = nn.LayerNorm(d, eps=1e-6)
        self.mlp_blocks = nn.ModuleList(EnergyBlock(d) for _ in range(c.num_mlp_layers))
        self.final_layer = EnergyFinal(d, c.ae.latent_size)

    def sample(self, hidden: Tensor, noise: Tensor) -> Tensor:
        x = self.norm_noise(self.noise_embd(noise))
        y = self.norm_hidden(self.hidden_embd(hidden))
        for block in self.mlp_blocks:
            x = block(x, y)
        return self.final_layer(x)


def distance(a: Tensor, b: Tensor, beta: float) -> Tensor:
    """|a - b|^beta over the last dimension; where a == b the value and the gradient are 0, for every beta in (0, 2)."""
    if beta == 1.0:
        return torch.linalg.norm(a - b, dim=-1)
    square = (a - b).pow(2).sum(-1)
    apart = square > 0
    return torch.where(apart, torch.where(apart, square, 1.0).pow(beta / 2), 0.0)


def energy_score(x: Tensor, mean: Tensor, log_std: Tensor, eps: Tensor, beta: float) -> Tensor:
    """x [N, R, L] model samples, mean/log_std [R, L], eps [M, R, L] -> score [R] (higher is better)."""
    n = x.shape[0]
    y = mean + eps * log_std.exp()
    xx = distance(x[:, None], x[None], beta).sum((0, 1)) / (n * (n - 1))
    xy = distance(x[:, None], y[None], beta).mean((0, 1))
    return xx - 2 * xy


# ---------------------------------------------------------------- diffusion and flow heads

def modulate(x, shift, scale):
    return x * (1 + scale) + shift


def timestep_embedding(t: Tensor, dim: int = 256, max_period: float = 10000.0) -> Tensor:
    half = dim // 2
    freqs = torch.exp(-math.log(max_period) * torch.arange(half, dtype=torch.float32) / half).to(t.device)
    a = t[:, None].float() * freqs[None]
    return torch.cat((a.cos(), a.sin()), -1)


class TimeEmbed(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(256, d), nn.SiLU(), nn.Linear(d, d))

    def forward(self, t):
        return self.mlp(timestep_embedding(t).to(self.mlp[0].weight.dtype))


class AdaLNBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.in_ln = nn.LayerNorm(d, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, d))
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(d, 3 * d))

    def forward(self, x, y):
        shift, scale, gate = self.adaLN_modulation(y).chunk(3, -1)
        return x + gate * self.mlp(modulate(self.in_ln(x), shift, scale))


class AdaLNFinal(nn.Module):
    def __init__(self, d, out):
        super().__init__()
        self.norm_final = nn.LayerNorm(d, elementwise_affine=False, eps=1e-6)
        self.linear = nn.Linear(d, out)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(d, 2 * d))

    def forward(self, x, y):
        shift, scale = self.adaLN_modulation(y).chunk(2, -1)
        return self.linear(modulate(self.norm_final(x), shift, scale))


class AdaLNNet(nn.Module):
    """x [R, C], integer timestep t [R], condition c [R, D] -> [R, out]."""

    def __init__(self, c: CalmConfig, out: int):
        super().__init__()
        d = c.hidden_size
        self.time_embed = TimeEmbed(d)
        self.cond_embed = nn.Linear(d, d)
        self.input_proj = nn.Linear(c.ae.latent_size, d)
        self.res_blocks = nn.ModuleList(AdaLNBlock(d) for _ in range(c.num_mlp_layers))
        self.final_layer = AdaLNFinal(d, out)

    def forward(self, x, t, c):
        x, y = self.input_proj(x), self.time_embed(t) + self.cond_embed(c)
        for block in self.res_blocks:
            x = block(x, y)
        return self.final_layer(x, y)


class FlowHead(nn.Module):
    def __init__(self, c: CalmConfig):
        super().__init__()
        self.c = c
        self.net = AdaLNNet(c, c.ae.latent_size)

    def velocity(self, x, t, h):
        return self.net(x, (t.float() * 1000).long(), h)             # times are fp32, as published

    def loss(self, target: Tensor, h: Tensor, t: Tensor, x0: Tensor) -> Tensor:
        """target, x0 [R, L]; t [R] in [0,1); -> per-row loss [R]."""
        xt = (1 - t[:, None]) * x0 + t[:, None] * target
        return (self.velocity(xt, t, h) - (target - x0)).pow(2).mean(-1)

    def sample(self, h: Tensor, x: Tensor, steps: int = 10) -> Tensor:
        """Midpoint rule, two evaluations per step."""
        dt = 1.0 / steps
        for i in range(steps):
            t = torch.full((x.shape[0],), i / steps, dtype=torch.float32, device=x.device)
            mid = x + 0.5 * dt * self.velocity(x, t, h)
            x = x + dt * self.velocity(mid, t + 0.5 * dt, h)
        return x


class Diffusion:
    """Gaussian diffusion with the cosine schedule, learned-range variances, epsilon prediction."""

    def __init__(self, use_steps: list[int] | None = None, total: int = 1000):
        import numpy as np
        bar = lambda u: math.cos((u + 0.008) / 1.008 * math.pi / 2) ** 2
        betas = np.array([min(1 - bar((i + 1) / total) / bar(i / total), 0.999) for i in range(total)])
        acp = np.cumprod(1 - betas)
        self.map = list(range(total)) if use_steps is None else sorted(use_steps)
        prev, new = 1.0, []
        for i in self.map:
            new.append(1 - acp[i] / prev)
            prev = acp[i]
        b = np.array(new)
        a = np.cumprod(1 - b)
        ap = np.append(1.0, a[:-1])
        post = b * (1 - ap) / (1 - a)
        f = lambda v: torch.from_numpy(np.asarray(v, dtype=np.float64))
        self.steps, self.dtype = len(b), torch.float32
        self.sqrt_a, self.sqrt_1ma = f(np.sqrt(a)), f(np.sqrt(1 - a))
        self.recip_a, self.recipm1_a = f(np.sqrt(1 / a)), f(np.sqrt(1 / a - 1))
        self.log_beta = f(np.log(b))
        self.log_post = f(np.log(np.append(post[1], post[1:])))
        self.c1, self.c2 = f(b * np.sqrt(ap) / (1 - a)), f((1 - ap) * np.sqrt(1 - b) / (1 - a))

    @staticmethod
    def spaced(total: int, count: int) -> list[int]:
        stride = (total - 1) / (count - 1)
        return [round(i * stride) for i in range(count)]

    def at(self, table: Tensor, t: Tensor) -> Tensor:
        return table.to(t.device)[t].to(self.dtype)[:, None]

    def q_sample(self, x0, t, eps):
        return self.at(self.sqrt_a, t) * x0 + self.at(self.sqrt_1ma, t) * eps

    def q_mean(self, x0, xt, t):
        return self.at(self.c1, t) * x0 + self.at(self.c2, t) * xt

    def p(self, out, x, t):
        eps, v = out.chunk(2, 1)
        frac = (v + 1) / 2
        log_var = frac * self.at(self.log_beta, t) + (1 - frac) * self.at(self.log_post, t)
        x0 = self.at(self.recip_a, t) * x - self.at(self.recipm1_a, t) * eps
        return self.q_mean(x0, x, t), log_var

    def loss(self, net, x0, h, t, eps) -> Tensor:
        """Per-row loss [R]: MSE of the noise plus the variational term that trains the variance."""
        xt = self.q_sample(x0, t, eps)
        out = net(xt, torch.tensor(self.map, device=t.device)[t], h)
        e, v = out.chunk(2, 1)
        mean, log_var = self.p(torch.cat((e.detach(), v), 1), xt, t)
        true_mean, true_lv = self.q_mean(x0, xt, t), self.at(self.log_post, t)
        kl = 0.5 * (-1 + log_var - true_lv + (true_lv - log_var).exp()
                    + (true_mean - mean).pow(2) * (-log_var).exp())
        vb = torch.where(t == 0, self.nll(x0, mean, 0.5 * log_var).mean(1), kl.mean(1)) / math.log(2.0)
        return (eps - e).pow(2).mean(1) + vb

    @staticmethod
    def nll(x, mean, log_scale):
        """Discretised Gaussian negative log likelihood, bins of width 2/255 on [-1, 1]."""
        cdf = lambda u: 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u.pow(3))))
        c, inv = x - mean, (-log_scale).exp()
        hi, lo = cdf(inv * (c + 1 / 255)), cdf(inv * (c - 1 / 255))
        log = lambda u: u.clamp(min=1e-12).log()
        return -torch.where(x < -0.999, log(hi), torch.where(x > 0.999, log(1 - lo), log(hi - lo)))

    def sample(self, net, h, x, noises, temperature=1.0):
        """noises [steps, R, L], used from the last step down; none is added at step 0."""
        for i in reversed(range(self.steps)):
            t = torch.full((x.shape[0],), i, dtype=torch.long, device=x.device)
            out = net(x, torch.tensor(self.map, device=x.device)[t], h)
            mean, log_var = self.p(out, x, t)
            x = mean + (0.0 if i == 0 else 1.0) * (0.5 * log_var).exp() * noises[i] * temperature
        return x


class DiffusionHead(nn.Module):
    def __init__(self, c: CalmConfig):
        super().__init__()
        self.net = AdaLNNet(c, 2 * c.ae.latent_size)
        self.train_process = Diffusion()
        self.sample_process = Diffusion(Diffusion.spaced(1000, 100))

    def loss(self, target, h, t, eps):
        return self.train_process.loss(self.net, target, h, t, eps)

    def sample(self, h, x, noises, temperature=1.0):
        return self.sample_process.sample(self.net, h, x, noises, temperature)


# ---------------------------------------------------------------- the language model

class Calm(nn.Module):
    def __init__(self, c: CalmConfig):
        super().__init__()
        self.c = c
        self.ae_model = Autoencoder(c.ae)
        self.ae_model.requires_grad_(False)
        self.transformer = Llama(c)
        d = c.hidden_size
        self.embed_proj = nn.Sequential(nn.Linear(c.patch_size * d, 2 * d), nn.SiLU(),
                                        nn.Linear(2 * d, d), nn.LayerNorm(d, eps=1e-6))
        head = {"energy": EnergyHead, "diffusion": DiffusionHead, "flow": FlowHead}[c.head](c)
        if c.head == "energy":
            self.mlp_generator = head
        self.generative_head = head

    def embed(self, tokens: Tensor) -> Tensor:
        """[B, P*K] tokens -> [B, P, D] one embedding per patch."""
        x = self.transformer.embed_tokens(tokens)
        return self.embed_proj(x.reshape(tokens.shape[0], -1, self.c.patch_size * self.c.hidden_size))

    def hidden(self, tokens: Tensor) -> Tensor:
        """[B, P*K] -> [B, P-1, D]: position p has seen patches 0..p and predicts patch p+1."""
        return self.transformer(self.embed(tokens)[:, :-1])[0]

    def energy_loss(self, tokens: Tensor, noise: Tensor, eps: Tensor) -> Tensor:
        """noise [N, R, noise_size], eps [M, R, L] with R = B*(P-1); every label is valid."""
        K, D = self.c.patch_size, self.c.hidden_size
        with torch.no_grad():
            mean, log_std = self.ae_model.posterior(tokens[:, K:].reshape(1, -1))
        h = self.hidden(tokens).reshape(-1, D)
        x = self.generative_head.sample(h.expand(noise.shape[0], *h.shape), noise)
        return -energy_score(x, mean[0], log_std[0], eps, self.c.beta).mean()


def initialise(model: nn.Module) -> nn.Module:
    """The published initialisation, for training from scratch."""
    for m in model.modules():
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, 0.0, 0.02)
        if isinstance(m, nn.Linear) and m.bias is not None:
            nn.init.zeros_(m.bias)
    for m in model.modules():
        if isinstance(m, EnergyFinal):
            nn.init.zeros_(m.linears[-1].weight)
        if isinstance(m, AdaLNNet):
            for k in m.modules():
                if isinstance(k, nn.Linear):
                    nn.init.xavier_uniform_(k.weight)
            for k in (m.time_embed.mlp[0], m.time_embed.mlp[2]):
                nn.init.normal_(k.weight, 0.0, 0.02)
            for k in [b.adaLN_modulation[-1] for b in m.res_blocks] + [m.final_layer.adaLN_modulation[-1], m.final_layer.linear]:
                nn.init.zeros_(k.weight)
    return model


# ---------------------------------------------------------------- autoregressive baseline

class Autoregressive(nn.Module):
    """Llama causal language model with an untied output projection."""

    def __init__(self, c: CalmConfig):
        super().__init__()
        self.model = Llama(c)
        self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)

    def logits(self, tokens: Tensor) -> Tensor:
        return self.lm_head(self.model(self.model.embed_tokens(tokens))[0])

    def loss(self, tokens: Tensor) -> Tensor:
        z = wide(self.logits(tokens)[:, :-1])
        return F.cross_entropy(z.reshape(-1, z.shape[-1]), tokens[:, 1:].reshape(-1))

    def patch_level_loss(self, tokens: Tensor, K: int) -> Tensor:
        """Loss of phase 1 of patch-level training, for [B, P*K] tokens. A position's input is the mean of K embeddings,
        and its loss the mean cross-entropy over the K tokens of the next patch."""
        B = tokens.shape[0]
        x = self.model.embed_tokens(tokens).reshape(B, -1, K, self.lm_head.in_features).mean(2)          # [B, P, D]
        z = wide(self.lm_head(self.model(x)[0])[:, :-1])                                                 # [B, P-1, V]
        labels = tokens.reshape(B, -1, K)[:, 1:]
        return F.cross_entropy(z[:, :, None].expand(-1, -1, K, -1).reshape(-1, z.shape[-1]), labels.reshape(-1))


# ---------------------------------------------------------------- BrierLM

def prefix_equal(a: Tensor, b: Tensor) -> Tensor:
    """1 where the first n tokens agree, for n = 1..K."""
    return (a == b).double().cumprod(-1)


def brier_positions(samples: Tensor, target: Tensor) -> Tensor:
    """samples [N, R, K], target [R, K] token ids, K >= 4 -> unbiased Brier-1..4 of every position [R, 4].

    The U-statistic over all pairs of samples; with N = 2 it is the published estimator.
    """
    n = samples.shape[0]
    hit = sum(prefix_equal(x, target) for x in samples) * 2 / n
    pair = sum(prefix_equal(samples[i], samples[j]) for i in range(n) for j in range(i))
    return (hit - pair * 2 / (n * (n - 1)))[:, :4]


def brier_lm(brier: Tensor) -> float:
    """100 times the geometric mean; 0 if any Brier-n is not positive."""
    return 100.0 * float(brier.prod()) ** 0.25 if bool((brier > 0).all()) else 0.0


def brier_report(positions: Tensor) -> dict:
    """positions [S, R, 4] of S sequences -> means and delete-one-sequence jackknife standard errors."""
    S = positions.shape[0]
    per = positions.mean(1)                                          # [S, 4]
    brier = per.mean(0)
    report = {"brier": brier.tolist(), "brier_lm": brier_lm(brier), "brier_se": None, "brier_lm_se": None}
    if S > 1:
        left_out = (per.sum(0) - per) / (S - 1)                      # [S, 4]
        lm = torch.tensor([brier_lm(b) for b in left_out], dtype=torch.float64)
        se = lambda v: ((S - 1) / S * (v - v.mean(0)).pow(2).sum(0)).sqrt()
        report["brier_se"], report["brier_lm_se"] = se(left_out).tolist(), float(se(lm))
    return report


# ---------------------------------------------------------------- temperature and generation

def exact_temperature(p: list[float], T: float) -> list[float]:
    """The distribution that every exact sampler must follow: P^(1/T), normalised."""
    w = [q ** (1.0 / T) for q in p]
    return [v / sum(w) for v in w]


def batch_choice(counts: dict, n: int) -> dict:
    """Counts of the distinct patches of a pool -> probability that each is chosen at T = 1/n."""
    for m in range(n, 0, -1):
        weight = {patch: math.comb(c, m) for patch, c in counts.items() if c >= m}
        if weight:
            return {patch: w / sum(weight.values()) for patch, w in weight.items()}
    return {}


@torch.no_grad()
def generate(model: Calm, prompt: list[int], noises: Tensor, pad: int, left: bool = True) -> list[int]:
    """One sequence at T = 1 with the energy head: noises [steps, noise_size] -> steps * K new tokens."""
    K = model.c.patch_size
    fill = [pad] * (-len(prompt) % K)
    tokens = torch.tensor([fill + prompt if left else prompt + fill])
    hidden, caches = model.transformer(model.embed(tokens))
    out = []
    for noise in noises:
        z = model.generative_head.sample(hidden[:, -1], noise[None])
        patch = model.ae_model.decode(z[None]).argmax(-1)            # [1, K]
        out += patch[0].tolist()
        hidden, caches = model.transformer(model.embed(patch), caches)
    return out
