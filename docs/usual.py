"""What is usual in a model's health? Measured by one command on the models at hand: `python docs/usual.py [MODEL …]`.

Writes `src/armillary/readouts/health/usual.json`: model → check → value, on the built-in sample at the default budget,
in float32. `armillary health` prints the range over these models beside every value.
"""

import json
import sys
from pathlib import Path

import armillary

MODELS = {
    "builtin:gpt": "builtin:gpt",
    "builtin:llama": "builtin:llama",
    "smollm2": "SmolLM2-135M",
    "minilm": "MiniLM-L6",
}
STORE = Path(armillary.__file__).parent / "readouts" / "health" / "usual.json"
MADE = "python docs/usual.py: armillary health on the built-in sample, 2500 tokens, float32"


def main(asked: list[str]) -> None:
    known = json.loads(STORE.read_text("utf-8"))["models"] if STORE.exists() else {}
    for model in asked or MODELS:
        lines = armillary.health(model, progress=False).to_dict()["lines"]
        # Three digits: a range is printed, not compared to the last bit.
        known[MODELS[model]] = {
            line["id"]: None if line["value"] is None else float(f"{line['value']:.3g}") for line in lines
        }
        models = {name: known[name] for name in MODELS.values() if name in known}
        STORE.write_text(json.dumps({"made": MADE, "models": models}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
