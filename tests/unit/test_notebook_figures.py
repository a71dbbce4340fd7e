"""A committed figure has a palette: fewer bytes, the same picture, and the same bytes when it is done again."""

from base64 import b64decode, b64encode
from io import BytesIO

from PIL import Image, ImageChops

from fsdp2_lab.lab.notebooks import _in_few_colours
from fsdp2_lab.show.canvas import canvas


def test_a_figure_in_few_colours_is_smaller_and_looks_the_same():
    figure, (ax,) = canvas()
    for line in range(8):
        ax.plot([0, 1], [line, 0], label=f"line {line}")
    ax.legend()
    file = BytesIO()
    figure.savefig(file, format="png", dpi=figure.dpi)
    before = b64encode(file.getvalue()).decode()
    after = _in_few_colours(before)
    assert len(after) < 0.5 * len(before)
    pictures = [Image.open(BytesIO(b64decode(each))).convert("RGB") for each in (before, after)]
    difference = ImageChops.difference(*pictures).convert("L").histogram()
    assert sum(difference[40:]) < 0.001 * sum(difference)
    assert _in_few_colours(after) == after
