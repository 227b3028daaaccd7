"""The large calibration: how often verdicts are wrong, and how far they depend on seed, budget and text.

    python bench/calibrate.py [--text sample --text books.txt --text encyclopaedia.txt] [--workers 16] [--out DIR]

120 untrained models, 10 seeds of both built-in models at three budgets, 20 draws of every planted model at every
strength; any option of `armillary calibrate` may be added. Hours of CPU time; stopped, the same command goes on.

What the package shows comes from here:

    cp DIR/calibration.json src/armillary/builtin/calibration.json
    cp DIR/trust.md docs/trust.md
"""

import sys

from armillary.cli import main

FULL = "--untrained 120 --seeds 10 --planted 20 --tokens 2500 --tokens 1000 --tokens 6000"

if __name__ == "__main__":
    # Options that are given come last and win; budgets add up.
    main(["calibrate", *FULL.split(), *sys.argv[1:]])
