"""What stays in a notebook of a launch: its outcome, its stages, and what each rank printed, as static HTML."""

from html import escape
from pathlib import Path

from ...contract.errors import LabError
from ...contract.secrets import split_command
from ...contract.units import format_seconds
from .progress import closing
from .rank_output import rank_output, without_machine_paths

_MOST_OUTPUTS = 8  # ranks that print different things, and whose output is kept
_PLAIN_LINES = 10  # of what rank 0 printed, in the text that stands for the HTML


def kept_output(run) -> tuple[str, str]:
    """HTML and its plain twin. Ranks that printed the same share a place; rank 0's is open, the others a click away."""
    try:
        first = f"{run.outcome} · {run.command}"
        seconds = {row.name: row.seconds for record in run.records[:1] for row in record.stages}
        outputs = _outputs(run.dir, run.ranks, split_command(run.launch.command) if run.launch else [])
    except LabError:
        first, seconds, outputs = closing(run), {}, []
    lines = [without_machine_paths(first)]
    if seconds:
        ends = {name: "did not end" if spent is None else format_seconds(spent) for name, spent in seconds.items()}
        lines.append(" · ".join(f"{name} {end}" for name, end in ends.items()))
    html = "<br>".join(f"<small>{escape(line)}</small>" for line in lines)
    html += "".join(_details(who, streams) for who, streams in outputs[:_MOST_OUTPUTS])
    if len(outputs) > _MOST_OUTPUTS:
        more = f"{len(outputs) - _MOST_OUTPUTS} more: {without_machine_paths(str(run.dir / 'logs'))}"
        html += f"<small>{escape(more)}</small>"
    if outputs and outputs[0][0][0] == 0 and (printed := outputs[0][1].get("stdout")):
        lines += [f"rank 0: {line}" for line in printed.splitlines()[-_PLAIN_LINES:]]
    return html, "\n".join(lines)


def _outputs(run_dir: Path, ranks: int, argv: list[str]) -> list[tuple[list[int], dict[str, str]]]:
    """Ranks that printed the same, and what that was by stream; ranks that printed nothing are absent."""
    groups = {}
    for rank in range(ranks):
        if streams := rank_output(run_dir, rank, argv):
            groups.setdefault(tuple(streams.items()), []).append(rank)
    return [(who, dict(streams)) for streams, who in groups.items()]


def _details(who: list[int], streams: dict[str, str]) -> str:
    title = f"rank {who[0]}" if len(who) == 1 else f"ranks {', '.join(map(str, who))}"
    # Rank 0's words are part of the lesson; what libraries say on stderr seldom is.
    opened = " open" if who[0] == 0 and "stdout" in streams else ""
    sizes = [f"{_lines(text)} on {stream}" for stream, text in streams.items()]
    body = ""
    for stream, text in streams.items():
        part = f"<pre>{escape(text)}</pre>"
        folded = stream == "stderr" and "stdout" in streams
        body += f"<details><summary><small>stderr</small></summary>{part}</details>" if folded else part
    return f"<details{opened}><summary><small>{title} · {', '.join(sizes)}</small></summary>{body}</details>"


def _lines(text: str) -> str:
    count = len(text.splitlines())
    return f"{count} line{'s' * (count != 1)}"
