"""Training of a model as the demo runs it: loss, gradients and optimizer are compiled."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from halide_backend.demonstration.workload import Compiler


class Training:
    """Steps over `batches`, again and again; a batch is what `model.loss` takes."""

    def __init__(
        self,
        compiler: Compiler,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._batches = batches
        self._loss = compiler(model.loss)
        self._update = compiler(optimizer.step)
        self._steps_done = 0

    def step(self) -> torch.Tensor:
        batch = self._batches[self._steps_done % len(self._batches)]
        self._steps_done += 1
        self._optimizer.zero_grad()
        loss = self._loss(*batch)
        loss.backward()
        self._update()
        return loss.detach()

    def values(self) -> dict[str, torch.Tensor]:
        losses = [self.step()]
        first = self.after_first_step()
        losses += [self.step() for _ in self._batches[1:]]
        return {**first, "loss curve": torch.stack(losses)}

    def after_first_step(self) -> dict[str, torch.Tensor]:
        """Copies of what is compared besides the losses."""
        # The optimizer leaves the gradients as the backward pass wrote them.
        gradients = [p.grad.flatten() for p in self._model.parameters() if p.grad is not None]
        return {"gradients of the first step": torch.cat(gradients)}
