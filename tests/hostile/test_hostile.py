"""The standing adversary: a short selection of every attack, and thousands of trials in `make test-all`."""

import pytest

import hostile
from hostile import campaign


def trials(name, numbers, folder, report):
    tally = campaign.Tally(name)
    for verdict in campaign.run(hostile.make(name), numbers, folder):
        tally.add(verdict)
    with report.disabled():
        print(f"\n{tally.line()}")
    return tally.values


@pytest.mark.parametrize("name", hostile.ATTACKS)
def test_a_short_attack_does_no_harm(name, tmp_path, capsys):
    found = trials(name, range(hostile.make(name).short), tmp_path, capsys)
    assert found["failures"] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", hostile.ATTACKS)
def test_a_long_attack_does_no_harm(name, tmp_path, capsys):
    attack = hostile.make(name)
    found = trials(name, range(attack.short, attack.slow), tmp_path, capsys)
    assert found["failures"] == []
