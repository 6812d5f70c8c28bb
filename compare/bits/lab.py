"""What `bits` does with a case: run variants, compare their bits, time them, ask orders."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from compare import accuracy, timing
from compare.accuracy.elements import ulp_distance
from compare.blackbox import BlackBox
from compare.device import Bench, Broken
from compare.findings import Against, Asked, Prediction, Variant
from compare.machine import Machine
from compare.order import Found, Products, Softmax, Unreadable, find
from compare.order.formula import formula
from compare.order.tree import Tree, predict
from compare.order.words import describe
from compare.pair import Arrays, Implementation, Pair, Reference, Shape

SAMPLES = 4096  # sums added on the CPU for a prediction: a share of 5 % is then known to 0.3 %
MOST_PRODUCTS = 1 << 23  # of a prediction, all samples together


@dataclass
class Lab:
    """One pair at one shape, data and seed on this machine. Use it inside `device.stream`."""

    machine: Machine
    pair: Pair
    shape: Shape
    data: str
    seed: int
    progress: Callable[[str], None] = lambda text: None
    processes: int = 1
    trees: dict[str, Tree] = field(default_factory=dict)  # name -> the order found

    def __post_init__(self) -> None:
        self.inputs: Arrays = self.pair.inputs(self.shape, self.data, self.seed)
        self.reference: Reference = self.pair.reference(self.inputs, self.shape, self.seed)
        self.bench = Bench(self.machine, self.inputs, self.pair.output_shape(self.shape))

    def named(self, name: str) -> Implementation:
        return next(i for i in self.pair.implementations if i.name == name)

    def lacks(self, implementation: Implementation) -> str:
        return self.machine.lacks(implementation.needs, implementation.arrays)

    def output(self, implementation: Implementation) -> np.ndarray:
        self.progress(f"{self.pair.name}: {implementation.name}")
        return self.bench.run(implementation, self.processes)

    def variant(
        self,
        words: str,
        choice: Sequence[str],
        implementation: Implementation,
        targets: Mapping[str, np.ndarray],
    ) -> Variant:
        """Runs it and holds it against the targets and the reference. Broken where it fails."""
        got = self.output(implementation)
        bounds = self.pair.bounds(self.reference, implementation, self.data, self.shape)
        found = accuracy.judge(got, self.reference, bounds)
        held = tuple(against(name, got, want) for name, want in targets.items())
        return Variant(words, tuple(choice), held, found.error, found.share)

    def time(
        self, variants: Sequence[Variant], implementations: Sequence[Implementation]
    ) -> list[Variant]:
        """The variants with their cold device times, all timed together; as they are on a host."""
        if not self.machine.on_card:
            return list(variants)
        self.progress(f"{self.pair.name}: timing")
        launches = [
            timing.Launch(str(number), self.bench.call(implementation))
            for number, implementation in enumerate(implementations)
        ]
        cost = self.pair.cost(self.shape)
        touched = sum(b.bits.numel() for b in (*self.bench.inputs.values(), self.bench.output)) * 4
        made = timing.measure(
            launches,
            pairs=(),
            card=timing.card_facts(self.machine.device),
            bytes_touched=touched,
            bytes_moved=cost.bytes,
            seed=self.seed,
        )
        colds = [made.timings[launch.name].cold for launch in launches]
        return [
            replace(variant, us=cold.us if cold else None)
            for variant, cold in zip(variants, colds, strict=True)
        ]

    def ask(
        self,
        implementation: Implementation,
        shape: Shape,
        question: Callable[[Callable[..., np.ndarray]], Products | Softmax],
        guesses: Sequence[Tree] = (),
        noun: str = "k",
    ) -> Asked:
        """The order in which an implementation adds at `shape`, kept in `trees` as well."""
        label = implementation.label or implementation.language
        blank = Asked(label, implementation.name)
        if reason := self.lacks(implementation):
            return replace(blank, reason=reason)
        inputs = {name: array.shape for name, array in self._shapes(shape).items()}
        output = self.pair.output_shape(shape)
        box = BlackBox(self.machine, implementation, inputs, output, self.processes)
        return self.answer(blank, question(box), guesses, noun)

    def _shapes(self, shape: Shape) -> Arrays:
        return self.inputs if shape == self.shape else self.pair.inputs(shape, self.data, self.seed)

    def answer(
        self, blank: Asked, question: Products | Softmax, guesses: Sequence[Tree], noun: str
    ) -> Asked:
        """Asks and puts the answer in words; a reason where there is none."""
        self.progress(f"{self.pair.name}: in which order does {blank.name} add?")
        started = time.perf_counter()
        try:
            found: Found = find(question, guesses)
            operands = question.operands() if isinstance(question, Products) else ()
        except (Unreadable, Broken) as error:
            return replace(blank, reason=str(error))
        same = next((name for name, known in self.trees.items() if known == found.tree), "")
        self.trees[blank.name] = found.tree
        return replace(
            blank,
            words=describe(found.tree, noun),
            formula=formula(found.tree),
            questions=found.questions,
            launches=found.launches,
            seconds=time.perf_counter() - started,
            fused=found.tree.fused,
            operands=operands,
            confirmed=any(found.tree == guess for guess in guesses),
            same_as=same,
            share=found.share,
        )


def against(target: str, got: np.ndarray, want: np.ndarray) -> Against:
    """Share of equal bits and the worst distance in ULP among finite elements."""
    equal = got.view(np.int32) == want.view(np.int32)
    finite = np.isfinite(got) & np.isfinite(want) & ~equal
    worst = int(ulp_distance(got[finite], want[finite]).max()) if finite.any() else 0
    return Against(target, float(equal.mean()) if equal.size else 1.0, worst)


def predicted(
    lab: Lab, one: str, other: str, terms: np.ndarray, seen: float | None, where: str = ""
) -> Prediction | None:
    """The share of equal sums of `terms` (samples, K) in the orders of two implementations."""
    if one not in lab.trees or other not in lab.trees:
        return None
    share = predict(lab.trees[one], lab.trees[other], terms)
    return Prediction(one, other, share, seen, len(terms), where)


def products(inputs: Arrays, shape: Shape, seed: int) -> np.ndarray:
    """Exact products of the elements of a sample of C: (samples, K), float64."""
    m, n, k = shape
    count = max(1, min(SAMPLES, m * n, MOST_PRODUCTS // max(k, 1)))
    random = np.random.Generator(np.random.PCG64(seed))
    at = np.sort(random.choice(m * n, count, replace=False))
    rows, cols = at // n, at % n
    return inputs["a"][rows].astype(np.float64) * inputs["b"][:, cols].T
