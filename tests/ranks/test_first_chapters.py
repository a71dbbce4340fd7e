"""What chapters 03 and 04 show, and their stages as given and mended, on real ranks."""

import pytest

from fsdp2_lab.learn import q03a, q03c, q03d, q03e, q04d, q04e
from fsdp2_lab.show import wire

ALL_ON_META = 'with torch.device("meta"):\n    model = '
TO_EMPTY = "model.to_empty(device=device)\n"
LONELY = "if rank == 0:\n    dist.all_reduce(total)  # for the log\n"


@pytest.fixture
def mended(project, checkout):
    """Makes a copy of a stage's script with one piece of text replaced by another, as a learner would."""

    def mend(stage: str, *changes: tuple[str, str]):
        text = (checkout / "launch" / f"{stage}.py").read_text()
        for old, new in changes:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        script = project.folder / f"{stage}_mended.py"
        script.write_text(text)
        return script

    return mend


def test_garbage_buffers_are_found_and_a_sound_way_passes(project, mended):
    given = project.run("launch/garbage.py").run
    assert given.noted("wrong_buffers")[0]
    assert q04e.check(given).kind == "not yet"
    sound = mended("garbage", (ALL_ON_META, "with init_empty_weights():\n    model = "), (TO_EMPTY, ""))
    assert q04e.check(project.run(sound).run).right
    half = mended("garbage", (ALL_ON_META, "with init_empty_weights():\n    model = "))  # to_empty spoils them again
    assert q04e.check(project.run(half).run).kind == "not yet"


def test_a_tied_weight_is_two_until_it_is_tied_again(project):
    run = project.run("launch/tied.py", "--model", "byte-llama-tied", ranks=1).run
    noted = run.noted("tied")[0]
    assert noted["after"]["one tensor"]
    assert noted["before tie_weights"]["parameters"] - noted["after"]["parameters"] == 384 * 256
    assert q04d.check("two", run).right


def test_a_lonely_collective_hangs_and_the_mended_one_does_not(project, mended):
    hung = project.run("launch/lonely.py", ranks=2, timeout=10)
    assert hung.code == 124
    assert q03e.check(hung.run).kind == "not yet"
    assert q03e.check(project.run(mended("lonely", (LONELY, "dist.all_reduce(total)\n"))).run).right


def test_collectives_and_meshes_are_as_the_chapter_says(project):
    run = project.run("launch/collectives.py", ranks=3).run
    assert q03a.check(3, run).right
    assert run.noted("all-to-all")[1]["after"] == run.noted("all-gather")[1]["after"] == [0, 0, 1, 1, 2, 2]
    mesh = project.run("launch/mesh_2d.py", ranks=4).run
    assert q03c.check(3, mesh).right


def test_collectives_send_what_a_ring_does_and_gloos_reduce_scatter_an_all_reduce(project):
    run = project.run("launch/wire.py", ranks=2).run
    counted = wire(run).iloc[:, 2]
    # Others may talk over loopback meanwhile, so only upwards is there room.
    for name, mib in {"all-gather": 8, "all-reduce": 16, "reduce-scatter": 16}.items():
        assert 0.98 * mib <= counted[name] < 1.5 * mib, name
    assert run.noted("all-gather")[0]["whole_bytes"] == 16 * 2**20
    assert q03d.check(counted["all-gather"], run).right
