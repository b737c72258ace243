"""The item `thm1-quotient`: which numbers meet its criteria."""

import pytest

from purectrl.paper import thm1_quotient

SIZES = (1024, 2048)


def computed(**needed):
    """Invented multiples of the radius for 20 runs, the same for both kinds of classes."""
    item = thm1_quotient.item({"lists": SIZES[-1], "linear": SIZES[-1]}, SIZES[0], runs=20)
    return {
        one.name: {"arguments": dict(one.arguments), "value": needed[one.arguments["way"]]} for one in item.computations
    }


def runs(*shares):
    """20 runs of which this share is covered, for each size."""
    return [[0.5 if run < 20 * share else 2.0 for share in shares] for run in range(20)]


@pytest.mark.parametrize(
    ("flow", "drift", "passed"),
    [
        ((1.0, 0.9), (1.0, 0.0), (True, True)),
        ((1.0, 0.85), (1.0, 0.5), (False, False)),
        ((0.8, 0.9), (0, 0), (False, True)),
    ],
)
def test_flows_must_stay_at_every_size_and_drifts_leave_at_the_last(flow, drift, passed):
    found = thm1_quotient.analyze({}, computed(flow=runs(*flow), drift=runs(*drift), drawn=runs(1, 1)))
    for stays, drawn, leaves in (found.checks[:3], found.checks[3:]):
        assert (stays.passed, drawn.passed, leaves.passed) == (passed[0], True, passed[1])
    row = next(row for row in found.numbers["rows"] if row["way"] == "flow" and row["N"] == SIZES[-1])
    assert row["covered"] == round(20 * flow[1])
    assert thm1_quotient.draw(found.numbers)
