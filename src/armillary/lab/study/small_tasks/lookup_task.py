"""A task that overlapping heads solve and ordinary heads of the same width do not: find the key that equals the query.

A row holds pairs of a key and a value, then a key alone; the answer is its value. A head must single out one key of
many by its score, and a score of `width // heads` axes cannot: keys crowd on a circle of two axes. A head that may use
the axes of others has more room. It shows that the comparison of heads can be won; text may not need it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from armillary.lab.parts.attention.member_heads import MembershipAttention
from armillary.lab.parts.attention.membership import Membership


@dataclass(frozen=True)
class LookupTask:
    """The task's size, and the training of one layer of attention on it."""

    heads: int = 4
    width: int = 8
    keys: int = 64
    values: int = 4
    pairs: int = 24
    steps: int = 1000
    batch: int = 128
    rate: float = 1e-2
    examined: int = 2000

    def accuracy(self, membership: str, results: str | None = None, seed: int = 0) -> float:
        """Share of right answers after training; 1/values by chance."""
        draws = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            model = _LookupLayer(self, membership, results)
        optimizer = torch.optim.Adam(model.parameters(), self.rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.rate, self.steps)
        for _ in range(self.steps):
            keys, values, answers = self.rows(self.batch, draws)
            optimizer.zero_grad()
            torch.autograd.backward(cross_entropy(model(keys, values), answers))
            optimizer.step()
            schedule.step()
        with torch.no_grad():
            keys, values, answers = self.rows(self.examined, draws)
            return float((model(keys, values).argmax(-1) == answers).float().mean())

    def rows(self, n: int, draws: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and values [row, pairs + 1] and answers [row]; the last value is the mark of a question."""
        keys = torch.rand(n, self.keys, generator=draws).argsort(1)[:, : self.pairs]
        values = torch.randint(0, self.values, (n, self.pairs), generator=draws)
        asked = torch.randint(0, self.pairs, (n, 1), generator=draws)
        question = torch.full((n, 1), self.values)
        answers = values.gather(1, asked)[:, 0]
        return torch.cat([keys, keys.gather(1, asked)], 1), torch.cat([values, question], 1), answers


class _LookupLayer(nn.Module):
    """Embedded keys and values, one layer of attention, answers from its last token."""

    def __init__(self, task: LookupTask, membership: str, results: str | None) -> None:
        super().__init__()
        d = task.width
        self.keys, self.values = nn.Embedding(task.keys, d), nn.Embedding(task.values + 1, d)
        self.read, self.write, self.answer = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, task.values)
        written = None if results is None else Membership(results, task.heads, d)
        self.heads = MembershipAttention(Membership(membership, task.heads, d), written)

    def forward(self, keys: Tensor, values: Tensor) -> Tensor:
        q, k, v = self.read(self.keys(keys) + self.values(values)).chunk(3, -1)
        answers: Tensor = self.answer(self.write(self.heads(q, k, v))[:, -1])
        return answers
