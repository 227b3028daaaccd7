"""Run many cases: `python tests/fuzz/campaign.py 0 10000 --seed 1 --log found.jsonl` prints the table.

A process runs the cases one after the other and writes each down before it begins: if it dies (a crash in native code)
or says nothing for a minute, that case is named, and another process goes on after it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import conftest  # noqa: F401 (one thread, checked shapes)
from fuzz.case import KINDS, Outcome, Runner
from fuzz.generators import GENERATORS, outcomes, table
from fuzz.shelf import stocked

SILENCE = 200


def work(first: int, end: int, seed: int, log: Path) -> None:
    """The cases of one process."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        os.chdir(root)
        shelf = stocked(root / "shelf")
        with log.open("a", encoding="utf-8") as file:
            for number in range(first, end):
                print(json.dumps({"begun": number}), file=file, flush=True)
                for outcome in outcomes([number], seed, shelf, root / "work", Runner() if number == first else RUNNER):
                    print(json.dumps(asdict(outcome)), file=file, flush=True)


RUNNER = Runner()


def read(log: Path) -> tuple[dict[int, Outcome], int]:
    """What became of every case, and the last one that was begun."""
    outcomes, begun = dict[int, Outcome](), -1
    for line in log.read_text("utf-8").splitlines() if log.exists() else ():
        record = json.loads(line)
        if "begun" in record:
            begun = record["begun"]
        else:
            outcomes[record["number"]] = Outcome(**record)
    return outcomes, begun


def campaign(first: int, end: int, seed: int, log: Path) -> dict[int, Outcome]:
    """All cases, whatever happens to the processes that run them."""
    while True:
        outcomes, begun = read(log)
        if begun >= first and begun not in outcomes:
            lost = Outcome(begun, GENERATORS[begun % len(GENERATORS)].__name__, "traceback", "the process died")
            with log.open("a", encoding="utf-8") as file:
                print(json.dumps(asdict(lost)), file=file)
            continue
        start = max(first, begun + 1)
        if start >= end:
            return outcomes
        words = [start, end, "--seed", seed, "--log", log, "--work"]
        child = subprocess.Popen([sys.executable, __file__, *map(str, words)])
        size, since = -1, time.monotonic()
        while child.poll() is None:
            time.sleep(1)
            now = log.stat().st_size if log.exists() else 0
            size, since = (now, time.monotonic()) if now != size else (size, since)
            if time.monotonic() - since > SILENCE:
                child.kill()
        child.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, default=Path("fuzz.jsonl"))
    parser.add_argument("--work", action="store_true")
    asked = parser.parse_args()
    log = asked.log.resolve()
    if asked.work:
        work(asked.first, asked.end, asked.seed, log)
        return
    outcomes = campaign(asked.first, asked.end, asked.seed, log)
    print(table(outcomes.values(), KINDS))
    for outcome in outcomes.values():
        if outcome.kind not in ("clean", "success"):
            print(f"\n{outcome.number} {outcome.generator} {outcome.kind}: {outcome.what}\n  {outcome.detail[-600:]}")


if __name__ == "__main__":
    main()
