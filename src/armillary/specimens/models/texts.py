"""Texts with a known order: none, a chain, topics that stay, or a model's own words."""

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.flow.capture import run, still
from armillary.flow.tokens import Corpus, Window
from armillary.specimens.models.bag import VOCABULARY
from armillary.specimens.models.draws import generator


def documents_of(ids: Tensor) -> Corpus:
    """A document per row."""
    windows = tuple(Window(i, tuple(row)) for i, row in enumerate(ids.tolist()))
    return Corpus(windows, "planted", len(windows), ids.numel(), ())


def corpus(documents: int = 40, length: int = 60, vocabulary: int = VOCABULARY, seed: int = 0) -> Corpus:
    """Documents of independent uniform tokens."""
    return documents_of(torch.randint(0, vocabulary, (documents, length), generator=generator(1, seed)))


def chained(documents: int = 40, length: int = 60, vocabulary: int = 60, seed: int = 0, follows: float = 0.8) -> Corpus:
    """Documents in which most tokens tell the next: t, t + 1, t + 2 …"""
    draw = generator(1, seed)
    ids = torch.randint(0, vocabulary, (documents, length), generator=draw)
    for t in range(1, length):
        follow = torch.rand(documents, generator=draw) < follows
        ids[:, t] = torch.where(follow, (ids[:, t - 1] + 1) % vocabulary, ids[:, t])
    return documents_of(ids)


CLASSES, MEMBERS = 6, 10


def classed(documents: int = 40, length: int = 60, seed: int = 0) -> Corpus:
    """Words of six classes, each followed by the sign of its class; which word comes after a sign is left to chance."""
    words = torch.randint(0, CLASSES * MEMBERS, (documents, length // 2), generator=generator(1, seed))
    signs = CLASSES * MEMBERS + words % CLASSES
    return documents_of(torch.stack((words, signs), 2).flatten(1))


def written(anatomy: Anatomy, documents: int = 24, length: int = 40, seed: int = 0) -> Corpus:
    """Text drawn from the model itself, token by token: no other model predicts it better on average."""
    draw = generator(5, seed)
    ids = torch.randint(0, anatomy.vocabulary, (documents, 1), generator=draw)
    with still(anatomy.model):
        while ids.shape[1] < length:
            chances = run(anatomy, ids, logits=True)[:, -1].float().softmax(-1)
            ids = torch.cat((ids, torch.multinomial(chances, 1, generator=draw)), 1)
    return documents_of(ids)


TOPICS, TOPIC_WORDS = 6, 10


def topics(stay: float = 0.8, documents: int = 40, length: int = 60, seed: int = 0) -> Corpus:
    """Documents whose topic stays with this chance from word to word; words of a topic are drawn alike."""
    draw = generator(9, seed)
    turns = torch.rand(documents, length, generator=draw) > stay
    topic = torch.randint(0, TOPICS, (documents, length), generator=draw)
    for t in range(1, length):
        topic[:, t] = torch.where(turns[:, t], topic[:, t], topic[:, t - 1])
    return documents_of(topic + TOPICS * torch.randint(0, TOPIC_WORDS, (documents, length), generator=draw))


def two_words(stay: float, documents: int = 24, length: int = 60, seed: int = 0) -> Corpus:
    """Documents of two words; a word repeats with this chance, so that C(Δ) = (2·stay − 1)^Δ."""
    draw = generator(8, seed)
    turns = torch.rand(documents, length, generator=draw) > stay
    start = torch.randint(0, 2, (documents, 1), generator=draw)
    return documents_of((start + turns.cumsum(1)) % 2)
