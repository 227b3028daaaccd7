"""Are a GPU's states those of float64? Compared with sums over the same activations, and with a float64 model."""

import collections
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers as tr
from gpu_parts import SETS, WORDS_AT_MOST, corpus, llama
from torch import Tensor, nn

from armillary.anatomy.folded import fold
from armillary.anatomy.read import read
from armillary.flow.capture import run, still, watching
from armillary.flow.glimpse import Tokens
from armillary.flow.machine import recording
from armillary.flow.machine.recording import Graphs, Recorder
from armillary.flow.tokens import Corpus
from armillary.measures import GroupedScalars, Largest, Moments, Reservoir, Rows, TopK
from armillary.probes.instruments.head_parts.head_nullspaces import null_shares
from armillary.probes.instruments.heads import FIELDS, HEADS
from armillary.probes.machinery.passes.pass_sites import PassSites
from armillary.probes.machinery.shared_pass import observe

NOUGHT = ("cos2", "mean_z", "radius_error")
"""What is 0 by definition under some norms; its error is compared with 1."""


def agreement(family: str, device: str, dtype: torch.dtype) -> dict[str, dict[str, dict[str, float]]]:
    """Against what → instrument → field → largest error, relative to the field's largest magnitude.

    'the same activations': what the sites showed on the device, summed up on the CPU in float64. 'a float64 model': the
    same weights in a float64 pass on the CPU, so that the model's own rounding counts.
    """
    # Eight batches of one shape: all but two are replayed.
    text, instruments = corpus(16, 64, 128), SETS["A+B+C"]
    live = _small(family).to(device=device, dtype=dtype)
    anatomy = read(live)
    recorder = Recorder(Graphs(anatomy.device)) if device == "cuda" else None
    ours = observe(anatomy, text, instruments, recorder=recorder)
    if recorder is not None:
        print(f"{recorder.replayed} batches replayed, refused: {recorder.refused}", flush=True)
    records = list(_recorded(anatomy, text))
    wide = read(_small(family).to(dtype=dtype).double())
    rounded = read(_small(family).to(dtype=dtype)) if torch.finfo(dtype).bits < 32 else None
    references = {
        "the same activations": _replayed(wide, text, instruments, records, rounded),
        "a float64 model": observe(wide, text, instruments),
    }
    errors = {
        name: {i.name: dict(_errors(ours[i], theirs[i])) for i in instruments} for name, theirs in references.items()
    }
    again = observe(anatomy, text, instruments)
    recording.LEAST, usual = 1 << 30, recording.LEAST
    run_each = observe(anatomy, text, instruments)
    recording.LEAST = usual
    others = {"the same pass again": again, "a pass without replays": run_each}
    return errors | {
        name: {i.name: _differing(ours[i], other[i]) for i in instruments} for name, other in others.items()
    }


def _differing(state: Any, repeated: Any) -> dict[str, float]:
    """How many arrays of two states have other bits."""
    first, second = state.arrays(), repeated.arrays()
    return {f"of {len(first)} arrays differ": float(sum(not torch.equal(first[n], second[n]) for n in first))}


def _small(family: str) -> nn.Module:
    """A small model with gains, shifts and biases away from 1 and 0, and weights large enough to matter."""
    torch.manual_seed(1)
    sizes = {"vocab_size": WORDS_AT_MOST, "bos_token_id": 0, "eos_token_id": 0}
    if family == "gpt2":
        model = tr.GPT2LMHeadModel(tr.GPT2Config(n_embd=128, n_layer=2, n_head=4, **sizes))
    elif family == "bert":
        config = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
        model = tr.BertForMaskedLM(tr.BertConfig(**config, **sizes))
    else:
        model = llama(128, 256, 2, 4, 2, WORDS_AT_MOST)()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model.eval()


def _recorded(anatomy: Any, text: Corpus) -> Iterator[list[tuple[str, Tensor | None, Tensor]]]:
    """What every site of a pass showed, batch by batch, as float64 on the CPU."""
    sites = {site for instrument in SETS["A+B+C"] for site in instrument.start(anatomy, text, 0).sites}
    seen: list[tuple[str, Tensor | None, Tensor]] = []

    def keep(site: str) -> Callable[[Tensor | None, Tensor], None]:
        return lambda given, value: seen.append(
            (site, None if given is None else given.double().cpu(), value.double().cpu())
        )

    with still(anatomy.model), watching(anatomy, {site: keep(site) for site in sites}):
        for batch in text.batches():
            run(anatomy, batch.ids, batch.mask)
            yield list(seen)
            seen.clear()


def _replayed(anatomy: Any, text: Corpus, instruments: Any, records: list[Any], rounded: Any = None) -> dict[Any, Any]:
    """The states of recorded activations; `rounded` is the model that showed them, if it has half precision."""
    ordered = sorted(instruments, key=lambda instrument: instrument.overwrites)
    watches = {instrument: instrument.start(anatomy, text, 0) for instrument in ordered}
    if rounded is not None:
        # As on the device: rotations are rounded, and what a head cannot see is computed from z, not from q and k.
        watches[HEADS]._null = [null_shares(fold(anatomy, layer), True) for layer in range(anatomy.layers)]
        watches[HEADS].anatomy = rounded
    sites = PassSites(anatomy, list(watches.values()))
    watchers = sites.watchers()
    for batch, record in zip(text.batches(), records, strict=True):
        sites.begin(Tokens.of(batch, text.groups, torch.device("cpu")))
        for watch in watches.values():
            watch.begin(sites.tokens)
            getattr(watch, "prepare", lambda: None)()
        for site, given, value in record:
            watchers[site](given, value)
        for watch in watches.values():
            left = watch.end()
            getattr(watch, "settle", lambda left: None)(left)
    return {instrument: watch.state for instrument, watch in watches.items()}


def _errors(ours: Any, theirs: Any) -> Iterator[tuple[str, float]]:
    """Each field's error; of named measures the largest."""
    worst: collections.defaultdict[str, float] = collections.defaultdict(float)
    for field, measure in ours._measures().items():
        other = getattr(theirs, field)
        pairs = [(measure[n], other[n]) for n in measure] if isinstance(measure, dict) else [(measure, other)]
        for mine, reference in pairs:
            for name, error in _error(mine, reference):
                worst[f"{field} {name}".strip()] = max(worst[f"{field} {name}".strip()], error)
    yield from worst.items()


def _error(mine: Any, reference: Any) -> Iterator[tuple[str, float]]:
    if isinstance(mine, GroupedScalars):
        for column, name in enumerate(mine.names):
            floor = float(reference.count.max()) if name in NOUGHT else 0.0
            yield name, _relative(mine.sum[:, column], reference.sum[:, column], floor)
    elif isinstance(mine, Moments):
        if mine.count and mine.count == reference.count:
            yield "covariance", _relative(mine.covariance(), reference.covariance())
            ours, theirs = (torch.linalg.eigvalsh(m.covariance()) for m in (mine, reference))
            yield "eigenvalues over the mean", float((ours - theirs).abs().max() / theirs.mean())
            yield "least eigenvalue over the median", float((ours - theirs)[0].abs() / theirs.median())
        else:
            yield "rows counted", float(mine.count != reference.count)
    elif isinstance(mine, Reservoir):
        yield "rows", _relative(mine.sample().rows, reference.sample().rows)
        yield "places", float(not torch.equal(mine.sample().payload, reference.sample().payload))
    elif isinstance(mine, Rows):
        a, b = mine.joined().double(), reference.joined().double()
        columns = FIELDS if a.ndim == 3 and a.shape[-1] == len(FIELDS) else ()
        for column, name in enumerate(columns):
            yield name, _relative(a[..., column], b[..., column])
        if not columns:
            yield "rows", _relative(a, b)
    elif isinstance(mine, TopK | Largest):
        a, b = (torch.as_tensor(m.values, dtype=torch.float64).cpu() for m in (mine, reference))
        yield "largest", _relative(a, b, 1.0)


def _relative(mine: Tensor, reference: Tensor, floor: float = 1e-30) -> float:
    """The largest error over the largest magnitude, or over `floor` where that is larger."""
    if mine.shape != reference.shape:
        return float("nan")
    mine, reference = mine.cpu().double(), reference.cpu().double()
    return (
        float((mine - reference).abs().max() / reference.abs().max().clamp_min(max(floor, 1e-30)))
        if mine.numel()
        else 0.0
    )
