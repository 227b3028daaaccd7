"""How much faster do two workers of one thread read than one?

    python bench/cluster.py [--tokens 65536] [--segment 4096] [--rounds 3]

The pass of chapter A over built-in text on builtin:gpt, with one and with two local dask workers, alternating; workers
have loaded the model before the clock starts. Beside the clock, which other processes on the machine disturb, processor
seconds are counted: those of the busiest worker and of the process that adds. Their sum is how long the pass would take
on quiet cores if nothing overlapped, so the ratio of these sums is a lower bound of the speed-up.
"""

import argparse
import os
import statistics
import time

import psutil
import torch

import armillary
from armillary.flow import tokens as tokens_module
from armillary.flow.documents import from_any, sample
from armillary.flow.tokens import encode
from armillary.probes.instruments.covariances import COVARIANCES
from armillary.probes.instruments.lengths import LENGTHS
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery.instrument import MODEL
from armillary.probes.machinery.processes.cluster import Call, Cluster, cluster_of
from armillary.probes.machinery.shared_pass import PassArm, SegmentReader
from armillary.survey_states import SentModel

SPHERE = (LENGTHS, COVARIANCES, SAMPLES)


def processors(cluster: Cluster) -> list[float]:
    """Processor seconds of each worker so far."""
    pids = cluster.client.run(os.getpid).values()
    return [sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids]


def timed(cluster: Cluster, arm: PassArm) -> tuple[float, float]:
    """Seconds by the clock, and processor seconds of the busiest worker and of this process."""
    with cluster.holding(SentModel.of(arm.anatomy), arm.corpus, 0) as observe:
        # Every worker makes the model: as many short segments as there are workers, twice.
        for _ in range(2):
            futures = [observe.submit(_short(i)) for i in range(2 * len(cluster))]
            [future.result() for future in futures]
        before, mine, began = processors(cluster), time.process_time(), time.perf_counter()
        reader = SegmentReader(None, observe, ahead=observe.expect)
        reader.expect(arm.name, SPHERE, arm.corpus)
        reader(arm, SPHERE, lambda count: None)
        clock = time.perf_counter() - began
        busiest = max(after - start for after, start in zip(processors(cluster), before, strict=True))
        return clock, busiest + time.process_time() - mine


def _short(batch: int) -> Call:
    return Call(MODEL, SPHERE, range(batch, batch + 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=65536)
    parser.add_argument("--segment", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    tokens_module.SEGMENT_TOKENS = asked.segment
    anatomy = armillary.load("builtin:gpt", device="cpu", progress=False)
    texts = list(sample().texts)
    documents = from_any(texts * (1 + asked.tokens // 20000))
    arm = PassArm(MODEL, anatomy, encode(documents, anatomy.tokenizer, anatomy.context, asked.tokens), 0)
    print(f"{arm.corpus.tokens} tokens in {len(arm.corpus.segments())} segments")
    runs_of: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    with cluster_of("local:1") as single, cluster_of("local:2") as double:
        for _ in range(asked.rounds):
            for workers, cluster in ((1, single), (2, double)):
                runs_of[workers].append(timed(cluster, arm))
                print(f"{workers} workers: {runs_of[workers][-1][0]:.1f} s, {runs_of[workers][-1][1]:.1f} processor s")
    for place, what in enumerate(("clock", "processor seconds of busiest worker and adder")):
        medians = {workers: statistics.median(run[place] for run in runs) for workers, runs in runs_of.items()}
        print(f"{what}: one {medians[1]:.2f}, two {medians[2]:.2f}, ratio {medians[1] / medians[2]:.2f}")


if __name__ == "__main__":
    main()
