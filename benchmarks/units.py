"""Chapter 05's ways of sharding, in turns, on a quiet machine: collectives, peak and step time with their spread.

    python benchmarks/units.py --ranks 2 --rounds 5

Prints a table in Markdown: medians over the rounds, and the least and the most in brackets.
"""

import argparse
from statistics import median

from fsdp2_lab import launch
from fsdp2_lab.contract.units import MIB
from fsdp2_lab.lab.runs import Run

WAYS = {
    "whole": ("whole", {}),
    "layers": ("layers", {}),
    "linears": ("linears", {}),
    "layers, root not given": ("kept_root", {}),
    "layers, not resharded": ("layers", {"reshard": False}),
}


def spread(values: list[float], form: str) -> str:
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=24)
    asked = parser.parse_args()
    runs: dict[str, list[Run]] = {way: [] for way in WAYS}
    for _ in range(asked.rounds):  # in turns, so that a slow minute meets all of them
        for way, (stage, settings) in WAYS.items():
            runs[way].append(launch(stage, ranks=asked.ranks, steps=asked.steps, **settings))
    print(f"\n{asked.ranks} ranks, {asked.rounds} rounds of {asked.steps} steps, {runs['whole'][0].how}\n")
    print("| | all-gathers + reduce-scatters | peak of a later step, MiB | median step, ms |\n|---|---|---|---|")
    for way, found in runs.items():
        counts = " + ".join(map(str, found[0].noted("collectives")[0].values()))
        peaks = spread([run.peak_bytes / MIB for run in found], ".1f")
        print(f"| {way} | {counts} | {peaks} | {spread([1000 * run.step_seconds for run in found], '.0f')} |")


if __name__ == "__main__":
    main()
