"""The forms of exercises: graded hints, choices, missing evidence, and finding an exercise by its name."""

import pytest
from cases import assert_choice, assert_number, assert_repair

import fsdp2_lab.learn
from fsdp2_lab.learn import Choice, Exercise, Repair, exercises
from fsdp2_lab.learn.exercise import NoEvidence
from fsdp2_lab.learn.progress import standings


def refuse(*evidence):
    raise NoEvidence("This run has one rank; launch it on two.")


def test_hints_say_more_each_time_and_the_last_points_to_the_solution():
    exercise = Exercise(
        name="q99a", question="How many?", unit="", measure=lambda: 2, hints=("few", "two"), solution_text="It is 2."
    )
    assert "hint 1 of 2: few" in exercise.hint().text and "solution" not in exercise.hint(1).text
    assert "hint 2 of 2: two" in exercise.hint().text
    assert exercise.hint().text == exercise.hint(99).text and "q99a.solution()" in exercise.hint().text
    assert exercise.solution().text == "It is 2."
    assert_number(exercise, (), 2, {3: "q99a.hint()"})


def test_a_choice_is_measured():
    choice = Choice(
        name="q99b",
        question="Which is larger?",
        options={"a": "the first", "b": "the second"},
        measure=lambda first, second: "a" if first > second else "b",
        hints=("Look at both.",),
        solution_text="As measured.",
        slips={"b": "That one is smaller."},
    )
    assert_choice(choice, (2, 1), "a")
    assert choice.check("b", 2, 1).text == "That one is smaller."
    assert "'a': the first" in choice.check(None).text


def test_evidence_that_cannot_answer_says_what_is_missing_and_is_no_try():
    number = Exercise(name="q99c", question="?", unit="", measure=refuse, hints=("-",), solution_text="-")
    choice = Choice(name="q99d", question="?", options={"a": "a"}, measure=refuse, hints=("-",), solution_text="-")
    repair = Repair(name="q99e", task="Mend it.", fault=refuse, hints=("-",), solution_text="-")
    for verdict in (number.check(1), choice.check("a"), repair.check()):
        assert verdict.kind == "note" and "one rank" in verdict.text
    assert standings() == {}


def test_a_repair_says_how_far_off_it_is():
    repair = Repair(
        name="q99f", task="Mend it.", fault=lambda run: run, unit="MiB", tolerance=0.5, hints=("-",), solution_text="-"
    )
    assert_repair(repair, (12.25,), (0.5,))
    assert "12.25 MiB" in repair.check(12.25).text


def test_every_exercise_is_found_by_its_name_and_named_as_it_is_found():
    names = exercises()
    assert {"q00a", "q02d", "q13d"} <= set(names)
    for name in names:
        exercise = getattr(fsdp2_lab.learn, name)
        assert exercise.name == name
        assert exercise.hints and exercise.solution_text
    assert exercises("02") == ["q02a", "q02b", "q02c", "q02d"]
    for missing in ("q02z", "q77a", "nonsense"):
        with pytest.raises(AttributeError, match=missing):
            getattr(fsdp2_lab.learn, missing)
