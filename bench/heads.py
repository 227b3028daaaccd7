"""The cost of all singular vectors of all heads, and of reading them out in words.

    python bench/heads.py [--rounds 5] [--lens /tmp/tl-venv/bin/python] [--share 8] [--all-threads]

GPT-2-small's shape with random weights: 144 heads, both matrices. The methods take turns on the same numbers. Ratios
are of medians (and, in brackets, of the best rounds, which a busy machine disturbs least): of CPU time on one thread,
of wall-clock time on all threads. TransformerLens runs in its own environment, created by

    python3 -m venv /tmp/tl-venv
    /tmp/tl-venv/bin/pip install -c constraints.txt torch==2.13.0 'transformer-lens<4'

and is left out if that is missing. All processes keep their freed pages, as `armillary survey` does. If
ARMILLARY_GPT2_ATTENTION names a safetensors file of the real GPT-2's attention (h.0, h.5, h.11), its heads are checked
against known values.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

HEADS, D, K, V = 144, 768, 64, 50257
KNOWN = (8.33, 10.70, 7.24, 33.59, 22.38, 12.37, 7.49, 26.53, 6.35, 4.18, 3.82, 7.45)


def factors(dtype: torch.dtype) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """W_Q and W_K, W_V and W_O's transpose; the same in every process."""
    draw = torch.Generator().manual_seed(0)
    q, k, v, o = torch.randn(4, HEADS, D, K, generator=draw, dtype=torch.float64).to(dtype)
    return [(q, k), (v, o)]


def timed(work: Callable[[], object]) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}


def serve_lens() -> None:
    """TransformerLens's process: reads lines '<dtype> <threads>', prints seconds. Runs in its environment."""
    from transformer_lens import FactoredMatrix

    data = {name: factors(getattr(torch, name)) for name in ("float32", "float64")}
    print("ready", flush=True)
    for line in sys.stdin:
        name, threads = line.split()
        torch.set_num_threads(int(threads))
        # New objects each time, because they cache their decomposition.
        fresh = [FactoredMatrix(a, b.mT) for a, b in data[name]]
        print(json.dumps(timed(lambda fresh=fresh: [matrix.svd() for matrix in fresh])), flush=True)


def lens(python: Path) -> Callable[[str, int], dict[str, float]] | None:
    if not python.exists():
        print(f"no TransformerLens at {python}: its rows are left out (see the top of this file)")
        return None
    keep = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str((1 << 31) - 1)}
    rival = subprocess.Popen(
        [str(python), __file__, "--serve-lens"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **keep},
        cwd="/",
    )
    assert rival.stdin is not None and rival.stdout is not None
    to, back = rival.stdin, rival.stdout
    if "ready" not in back.readline():
        print(f"{python} could not import transformer_lens: its rows are left out")
        return None

    def ask(dtype: str, threads: int) -> dict[str, float]:
        to.write(f"{dtype} {threads}\n")
        to.flush()
        return json.loads(back.readline())

    return ask


def ours(dtype: str, threads: int, what: str = "svd") -> dict[str, float]:
    from armillary.geometry.factored import Factored

    torch.set_num_threads(threads)
    return timed(lambda: [getattr(Factored(a, b), what)() for a, b in OURS[dtype]])


def full(threads: int, heads: int = 2) -> dict[str, float]:
    """Dense d × d SVDs of a few heads, scaled up to all."""
    torch.set_num_threads(threads)
    dense = [a[i] @ b[i].mT for a, b in OURS["float64"] for i in range(heads)]
    spent = timed(lambda: [torch.linalg.svd(m) for m in dense])
    return {name: seconds * HEADS / heads for name, seconds in spent.items()}


def decompositions(python: Path, rounds: int, all_threads: bool) -> None:
    rival = lens(python)
    # Threads that share small decompositions wait for each other: on a busy machine a round of the others takes a
    # minute. So the second race is for those who ask.
    for threads, clock in ((1, "cpu"), (os.cpu_count() or 1, "wall"))[: 1 + all_threads]:
        runners: dict[str, Callable[[], dict[str, float]]] = {
            "ours float64": lambda t=threads: ours("float64", t),
            "ours float32": lambda t=threads: ours("float32", t),
            "ours float64, values alone": lambda t=threads: ours("float64", t, "values"),
            "full SVD float64 (4 matrices, scaled up)": lambda t=threads: full(t),
        }
        if rival is not None:
            runners["TransformerLens float64"] = lambda t=threads: rival("float64", t)
            runners["TransformerLens float32"] = lambda t=threads: rival("float32", t)
        spent, best = race(runners, rounds, clock)
        print(f"\nall heads, both matrices, values and vectors: {threads} thread(s), {clock} time, {rounds} rounds")
        for name, seconds in spent.items():
            share, least = spent["ours float64"] / seconds, best["ours float64"] / best[name]
            print(f"  {name:42s} {seconds:8.3f} s   ours float64 is {share:.4f} ({least:.4f}) of it, 1/{1 / share:.1f}")
        if rival is not None:
            share, least = (t["ours float32"] / t["TransformerLens float32"] for t in (spent, best))
            ratio = f"{share:.4f} ({least:.4f}) of it, 1/{1 / share:.1f}"
            print(f"  {'TransformerLens float32':53s}   ours float32 is {ratio}")


def race(
    runners: dict[str, Callable[[], dict[str, float]]], rounds: int, clock: str
) -> tuple[dict[str, float], dict[str, float]]:
    """Median and least seconds of each; they take turns, and a first round that warms up is not counted."""
    spent: dict[str, list[float]] = {name: [] for name in runners}
    for turn in range(rounds + 1):
        for name, runner in runners.items():
            seconds = runner()[clock]
            if turn:
                spent[name].append(seconds)
    return {k: statistics.median(v) for k, v in spent.items()}, {k: min(v) for k, v in spent.items()}


def accuracy(title: str, pairs: list[tuple[torch.Tensor, torch.Tensor]], gap: float = 1e-3) -> None:
    """Worst errors against dense float64 SVDs: values by σ1, vectors by projectors on groups `gap`·σ1 apart."""
    from armillary.geometry.factored import Factored

    value_error = vector_error = frame_error = 0.0
    for a, b in pairs:
        svd, alone = Factored(a, b).svd(), Factored(a, b).values()
        for head in range(len(a)):
            u, s, vh = torch.linalg.svd(a[head] @ b[head].mT, full_matrices=False)
            k = svd.values.shape[-1]
            for values in (svd.values[head], alone[head]):
                value_error = max(value_error, float((values - s[:k]).abs().max() / s[0]))
            groups = svd.clusters(gap)[head]
            for mine, theirs in ((svd.left[head], u[:, :k]), (svd.right[head], vh[:k].mT)):
                eye = torch.eye(k, dtype=mine.dtype)
                frame_error = max(frame_error, float((mine.mT @ mine - eye).abs().max()))
                for group in groups.unique():
                    chosen = groups == group
                    # The sine of the largest angle between the two subspaces.
                    p, q = mine[:, chosen], theirs[:, chosen]
                    vector_error = max(vector_error, float(torch.linalg.matrix_norm(p - q @ (q.mT @ p), 2)))
    print(f"\naccuracy against dense float64 SVDs, {title}")
    print(f"  values / σ1 {value_error:.1e}   subspaces {vector_error:.1e}   orthonormality {frame_error:.1e}")


def readouts(share: int, rounds: int, top: int = 10) -> None:
    """Top tokens of 20 directions, both sides of both matrices of all heads, next to the bare product in chunks."""
    from armillary.geometry import readout

    draw = torch.Generator().manual_seed(1)
    words = torch.randn(V, D, generator=draw)
    directions = torch.randn(HEADS * 2 * 2 * 20 // share, D, generator=draw)
    step = readout.SCORES // V
    allowed = torch.rand(V, generator=draw) < 0.97

    def bare() -> None:
        held = words.new_empty(min(step, len(directions)), V)
        for rows in torch.split(directions, step):
            torch.matmul(rows, words.mT, out=held[: len(rows)])

    torch.set_num_threads(1)
    spent, best = race(
        {
            "bare product": lambda: timed(bare),
            "product at once, 8 times as many rows": lambda: timed(
                lambda: [torch.matmul(rows, words.mT) for rows in torch.split(directions, 8 * step)]
            ),
            f"top {top}": lambda: timed(lambda: readout.top_tokens(directions, words, top)),
            f"top {top}, 3 % forbidden": lambda: timed(
                lambda: readout.top_tokens(directions, words, top, allowed=allowed)
            ),
            f"top {top} by cosine": lambda: timed(lambda: readout.top_tokens(directions, words, top, cosine=True)),
            f"top {top} of both ends": lambda: timed(lambda: readout.both_ends(directions, words, top)),
        },
        rounds,
        "cpu",
    )
    print(
        f"\nread-outs: {len(directions)} directions (1/{share} of all) × {V} words × {D}, float32, 1 thread, cpu time"
    )
    for name, seconds in spent.items():
        share, least = seconds / spent["bare product"], best[name] / best["bare product"]
        print(f"  {name:42s} {seconds:8.3f} s   {share:.3f} ({least:.3f}) of the bare product")


def real_gpt2() -> None:
    """σ1 and n99 of the real heads, raw: W_Q W_Kᵀ/√k and W_V W_O without ln_1's gain."""
    where = os.environ.get("ARMILLARY_GPT2_ATTENTION", "")
    if not Path(where).is_file():
        print("\nreal GPT-2: left out; ARMILLARY_GPT2_ATTENTION names no file")
        return
    from safetensors.torch import load_file

    from armillary.geometry.factored import Factored, n99

    weights = {name: tensor.double() for name, tensor in load_file(where).items()}
    pairs = []
    print("\nreal GPT-2, raw matrices with 1/√k; n99: how many values make up 99 % of the sum of singular values")
    for layer in (0, 5, 11):
        q, k, v = weights[f"transformer.h.{layer}.attn.c_attn.weight"].unflatten(1, (3, 12, 64)).permute(1, 2, 0, 3)
        o = weights[f"transformer.h.{layer}.attn.c_proj.weight"].unflatten(0, (12, 64)).mT
        pairs += [(q / 8, k), (v, o)]
        qk, vo = Factored(q / 8, k).values(), Factored(v, o).values()
        if layer == 0:
            print("  σ1 of W_QK, layer 0:", *(f"{x:.2f}" for x in qk[:, 0].tolist()))
            off = max(abs(x - y) for x, y in zip(qk[:, 0].tolist(), KNOWN, strict=True))
            print(f"  largest difference from what is known, to two decimals: {off:.4f}")
        print(f"  layer {layer:2d}: n99 of W_QK", *n99(qk).tolist(), "  of W_VO", *n99(vo).tolist())
    accuracy("real GPT-2, 72 matrices", pairs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--share", type=int, default=8, help="read out one in so many of the directions")
    parser.add_argument("--lens", type=Path, default=Path("/tmp/tl-venv/bin/python"))
    parser.add_argument("--all-threads", action="store_true", help="race on all threads too, by the clock on the wall")
    parser.add_argument("--serve-lens", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve_lens:
        serve_lens()
        sys.exit()

    from armillary.flow.machine.memory import keep_pages

    keep_pages()
    OURS = {name: factors(getattr(torch, name)) for name in ("float32", "float64")}
    decompositions(args.lens, args.rounds, args.all_threads)
    accuracy("6 random matrices", [(a[:3], b[:3]) for a, b in OURS["float64"]])
    readouts(args.share, args.rounds)
    real_gpt2()
