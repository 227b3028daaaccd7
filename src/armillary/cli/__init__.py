"""The command line. Commands import what they need when they run, so that --help is quick."""

import io
import sys

import click

from armillary import __version__
from armillary.cli.calibrate import calibrate
from armillary.cli.explore import explore
from armillary.cli.heads import heads, paper
from armillary.cli.health import health
from armillary.cli.lab import lab
from armillary.cli.matrix import matrix
from armillary.cli.models import anatomy, edits, models
from armillary.cli.patch_maps import patches
from armillary.cli.report import compare, figures, report
from armillary.cli.survey import claims, merge, show, survey
from armillary.cli.terminal.failures import Commands
from armillary.cli.travel import travel

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.group(cls=Commands, context_settings=CONTEXT)
@click.version_option(__version__, prog_name="armillary")
def main() -> None:
    """Measure the geometry of transformers: claims in, verdicts out.

    \b
    armillary survey                      the default model, the built-in text, all claims
    armillary survey ./my-model --text notes/ --out result/
    armillary claims sphere.radius        what is claimed, and what would decide it
    armillary travel builtin:gpt "To kill two birds with one stone"
    armillary explore                     the same in a browser: type a sentence, click a head
    """
    # A terminal or pipe whose encoding lacks √ or γ shows ? instead.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


COMMANDS = (
    survey,
    merge,
    show,
    health,
    claims,
    report,
    figures,
    compare,
    matrix,
    calibrate,
    models,
    anatomy,
    edits,
    heads,
    paper,
    travel,
    patches,
    lab,
    explore,
)
for command in COMMANDS:
    main.add_command(command)
