"""An implementation as a function of host arrays: what an instrument asks without reading it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from compare.device import Bench, ContextLost
from compare.machine import Machine
from compare.pair import Implementation, Shape


class BlackBox:
    """One implementation at one shape on this machine, in buffers placed as those of a run.

    Called with float32 host arrays of `inputs`' shapes in their order, it returns the output as a
    host array. Broken where a launch fails. Call it inside `device.stream`.
    """

    def __init__(
        self,
        machine: Machine,
        implementation: Implementation,
        inputs: Mapping[str, Shape],
        output: Shape,
        processes: int = 1,
    ) -> None:
        empty = {name: np.zeros(shape, np.float32) for name, shape in inputs.items()}
        self.bench, self.implementation = Bench(machine, empty, output), implementation
        self.processes = processes
        self.lost = False  # whether the card's context was lost in it

    def __call__(self, *arrays: np.ndarray, **options: Any) -> np.ndarray:
        import torch

        for (name, buffer), array in zip(self.bench.inputs.items(), arrays, strict=True):
            buffer.tensor.copy_(torch.from_numpy(np.ascontiguousarray(array)))
            self.bench.pristine[name].copy_(buffer.bits)
        chosen = replace(self.implementation, options={**self.implementation.options, **options})
        try:
            return self.bench.run(chosen, self.processes)
        except ContextLost:
            self.lost = True
            raise
