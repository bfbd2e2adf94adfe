"""One process of a data-parallel training: every rank trains on its share, compiled, and is compared with eager.

    python -m torch.distributed.run --standalone --nproc-per-node 2 -m tests.distributed.data_parallel cuda

The truth is the same model in eager mode on the whole batch of every step, in this process alone. Rank 0 prints what
each rank compiled as JSON.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from collections.abc import Callable

import torch
import torch._inductor.config as inductor_config
import torch.distributed as distributed
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import halide_backend

WIDTH, WORDS, TOKENS, BATCH, STEPS = 64, 128, 48, 8, 6


class Model(torch.nn.Module):
    """Embedding, a gated layer with its norm, a dropout that is off, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        self.norm, self.last = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(2 * WIDTH, WIDTH)
        self.head = torch.nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        gate, value = self.up(self.norm(x)).chunk(2, -1)
        logits: torch.Tensor = self.head(self.last(x + self.down(F.silu(gate) * value)))
        return logits


def losses(model: torch.nn.Module, call: Callable[..., torch.Tensor], part: slice, device: torch.device) -> list[float]:
    """The loss of each step on this `part` of the batches."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(7)
    found = []
    for _ in range(STEPS):
        tokens = torch.randint(WORDS, (BATCH, TOKENS + 1), generator=generator)[part].to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(call(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        found.append(loss.item())
    return found


def main(kind: str) -> None:
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device(kind, rank) if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if kind == "cuda" else "gloo")
    torch.manual_seed(0)
    model = Model().to(device)
    reference = copy.deepcopy(model)
    wanted = losses(reference, reference, slice(None), device)

    parallel = DistributedDataParallel(model, device_ids=[rank] if kind == "cuda" else None)
    share = BATCH // ranks
    with inductor_config.patch({f"{kind}_backend": "halide_backend", "force_disable_caches": True}):
        got = losses(model, torch.compile(parallel), slice(rank * share, (rank + 1) * share), device)
    mean = torch.tensor(got, device=device)
    distributed.all_reduce(mean)
    torch.testing.assert_close(mean.cpu() / ranks, torch.tensor(wanted), rtol=1e-4, atol=1e-4)
    for parameter, eager in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(parameter, eager, rtol=2e-3, atol=2e-4)
        everywhere = [torch.empty_like(parameter) for _ in range(ranks)]
        distributed.all_gather(everywhere, parameter.detach())
        assert all(torch.equal(everywhere[0], other) for other in everywhere)
    stats = halide_backend.stats()
    reports: list[object] = [None] * ranks
    own = {"native": stats["native_kernels"], "delegated": stats["delegation_reasons"]}
    distributed.all_gather_object(reports, own)
    if rank == 0:
        print(json.dumps(reports), flush=True)
    distributed.barrier()
    # torch 2.13's ~ProcessGroupGloo waits, with the GIL held, for threads that may want it.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
