"""The large calibration: how often verdicts are wrong, and how far they depend on seed, budget and text.

    python bench/calibrate.py [--text sample --text books.txt --text encyclopaedia.txt] [--workers 16] [--out DIR]

120 untrained models, 10 seeds of both built-in models at three budgets, 20 draws of every planted model at every
strength; any option of `armillary calibrate` may be added. Hours of CPU time; stopped, the same command goes on.

    python bench/calibrate.py ship DIR [DIR...]

puts it into the package and into docs/trust.md. With several folders, a claim counts as in the last that measured it.
"""

import sys
from functools import reduce
from pathlib import Path

from armillary.cli import main
from armillary.probes import claims
from armillary.results.calibration.calibration_file import NAME, calibration_json, read_calibration
from armillary.results.calibration.counts import joined
from armillary.views.text.papers.trust import trust_page

FULL = "--untrained 120 --seeds 10 --planted 20 --tokens 2500 --tokens 1000 --tokens 6000"
ROOT = Path(__file__).parent.parent


def ship(folders: list[str]) -> None:
    studies = {folder: read_calibration(Path(folder)) for folder in folders}
    for folder, study in studies.items():
        if unknown := [text for text in study.study.texts if text not in study.texts]:
            print(f"{folder} does not say what its texts held ({', '.join(unknown)}): they could not be compared.")
    today = claims()
    # A study of one wording and one of another have the same rule: only their digests differ.
    calibration = reduce(joined, (study.in_words_of(today) for study in studies.values()))
    calibration = calibration.in_order([claim.id for claim in today])
    (ROOT / "src/armillary/builtin" / NAME).write_text(calibration_json(calibration), "utf-8")
    (ROOT / "docs/trust.md").write_text(trust_page(calibration, today), "utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["ship"]:
        ship(sys.argv[2:])
    else:
        # Options that are given come last and win; budgets add up.
        main(["calibrate", *FULL.split(), *sys.argv[1:]])
