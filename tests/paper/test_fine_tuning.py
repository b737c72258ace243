"""Curves of fine-tuning runs: read from records, compared where as much was spent, and judged against known answers."""

import math

import numpy as np
import pytest
from small import SMALL
from test_items import diffusion, finished

from purectrl.core import StoreError
from purectrl.paper.diffusion_curves import mean_ahead, never_behind
from purectrl.paper.diffusion_fine_tuners import LABELS
from purectrl.paper.diffusion_taste import analyze, worth
from purectrl.paper.fine_tuning import ahead, curve, mean_curve, reward_at


def record(rollouts, queries, reward=None, **more):
    """A record with an evaluation, or without one."""
    evaluation = {"eval_reward": reward, "eval_reward_held_out": 0.5, "eval_classifier_accuracy": 0.9}
    evaluation |= {"eval_diversity": 0.2, "eval_kl_pretrained": 4.0}
    spent = {"measurements": 4 * rollouts, "rollouts": rollouts, "queries": queries, "seconds": 2.0 * rollouts}
    return spent | (evaluation if reward is not None else {}) | more


def rising(queries, slope=0.1, start=0.0, seconds=1.0):
    """A curve whose reward is linear in the logarithm of the queries."""
    reward = [start + slope * math.log(q) for q in queries]
    spent = {"queries": list(queries), "seconds": [seconds * q for q in queries], "trajectories": list(queries)}
    return spent | {"reward": reward}


def test_queries_are_added_up_and_the_rest_is_read():
    found = curve([record(2, 3), record(5, 4, 0.6), record(9, 8, 0.7)], "run")
    assert found["queries"] == [7.0, 15.0]
    assert found["trajectories"] == [5.0, 9.0]
    assert found["labels"] == [20.0, 36.0]
    assert found["reward"] == [0.6, 0.7]
    assert found["KL"] == [4.0, 4.0]


def test_records_that_lack_something_are_refused():
    with pytest.raises(StoreError, match="has no evaluation; run the item again"):
        curve([record(2, 3)], "run")
    lacking = record(2, 3, 0.5)
    del lacking["eval_diversity"]
    with pytest.raises(StoreError, match="lacks 'eval_diversity'"):
        curve([lacking], "run")


def test_the_mean_of_curves_has_a_standard_error_of_seeds():
    found = mean_curve([rising((10, 100), start=start) for start in (0.0, 0.2, 0.4)])
    assert found["reward"] == pytest.approx([0.2 + 0.1 * math.log(10), 0.2 + 0.1 * math.log(100)])
    assert found["standard error"] == pytest.approx([0.2 / 3**0.5] * 2)
    assert mean_curve([rising((10, 100))])["standard error"] == [0.0, 0.0]


def test_between_updates_a_reward_is_linear_in_the_logarithm():
    """A curve that is linear in the logarithm is met exactly, whatever its updates."""
    amounts = np.geomspace(10, 1000, 7)
    assert reward_at(rising((10, 50, 1000)), "queries", amounts) == pytest.approx(0.1 * np.log(amounts))
    lead = ahead([rising((5, 20, 400), start=0.3)], [rising((10, 90, 500))], "queries")
    assert np.isnan(lead[0, 0]), "theirs had no update yet"
    assert lead[0, 1:] == pytest.approx([0.3, 0.3])


def test_seeds_are_paired():
    """Seeds differ by 1, the methods by 0.01: unpaired, nothing could be said."""
    theirs = [rising((10, 100), start=float(seed)) for seed in range(4)]
    ours = {"a": [rising((10, 100), start=seed + 0.01) for seed in range(4)]}
    assert never_behind(ours, theirs).passed
    assert mean_ahead(ours, theirs, "trajectories").passed
    behind = {"a": [rising((10, 100), start=seed - 0.01) for seed in range(4)]}
    assert not never_behind(behind, theirs).passed
    assert not mean_ahead(behind, theirs, "trajectories").passed
    assert "behind at 2 of 2 updates" in never_behind(behind, theirs).observed


def test_the_best_sampler_may_be_another_one_at_each_update():
    theirs = [rising((10, 100)) for _ in range(2)]
    first, last = ({**rising((10, 100)), "reward": rewards} for rewards in ([0.9, 0.0], [0.0, 0.9]))
    assert never_behind({"first": [first] * 2, "last": [last] * 2}, theirs).passed
    found = never_behind({"first": [first] * 2}, theirs)
    assert not found.passed
    assert "behind at 1 of 2 updates" in found.observed


def test_half_of_the_seconds_is_ahead_in_seconds_and_not_in_queries():
    theirs, ours = [rising((10, 100)) for _ in range(3)], [rising((10, 100), seconds=0.5) for _ in range(3)]
    found = mean_ahead({"a": ours}, theirs, "seconds")
    assert found.passed
    assert found.observed == f"`a`: {0.1 * math.log(2):+.3f} ± 0.000, 3 seeds"
    assert not mean_ahead({"a": ours}, theirs, "queries").passed, "equal is not ahead"
    apart = [rising((1000, 2000))] * 3
    assert "no update has spent as much" in mean_ahead({"a": ours}, apart, "queries").observed


def test_the_table_of_fine_tuners_names_the_best_and_its_second_opinion(tmp_path):
    rewards = {"ddpo": 0.95, "seiko": 0.8, "pure-seiko": 0.7}

    def metrics(group, seed):
        accuracy = 0.5 if group.algorithm == "ddpo" else 0.97
        return diffusion(rewards.get(group.algorithm, 0.6) + 0.001 * seed) | {"classifier_accuracy": accuracy}

    found = finished("diffusion-fine-tuners", tmp_path, metrics)
    best, opinion, *raised = found["checks"]
    assert not best["passed"]
    assert "highest reward is that of DDPO, 0.951; SEIKO has 0.801, difference 0.150" in best["observed"]
    assert not opinion["passed"]
    assert opinion["observed"].startswith("DDPO: 0.500")
    assert {check["criterion"].split("`")[1] for check in raised if check["passed"]} == set(rewards)
    *rows, pretrained = found["table"]["rows"]
    assert [row[0] for row in rows][-2:] == ["SEIKO", "PURE_SEIKO"]
    assert pretrained[:2] == ["pretrained", 0.6]
    assert found["numbers"]["labels"] == LABELS


def test_every_fine_tuner_has_the_same_budget():
    groups = SMALL["diffusion-fine-tuners"].groups
    assert {group.spec().budget.measurements for group in groups} == {LABELS}
    assert len({str(group.arguments) for group in groups}) == 1


def test_draft_is_also_run_with_the_divergence_of_seiko():
    found = {group.name: group.spec().algorithm.learner for group in SMALL["diffusion-fine-tuners"].groups}
    price = lambda name: (found[name].finetune.alpha, found[name].finetune.beta)  # noqa: E731
    assert price("draft") == (0.0, 0.0)
    assert price("draft-divergence") == price("seiko") != (0.0, 0.0)
    assert found["draft-divergence"].finetune.max_backprop_steps == 1


def test_the_curves_have_as_many_queries_as_measurements_of_distinct_images():
    """Distinct images of four draws from the paper's sampler: Σ_i 1 − (1 − p_i)⁴ per trajectory, a quarter per label."""
    from purectrl.core.samplers.geometric import geometric_probabilities
    from purectrl.paper.diffusion_curves import DISTINCT

    distinct = sum(1 - (1 - p) ** 4 for p in geometric_probabilities(4, 6.0)) / 4
    assert pytest.approx(distinct, rel=0.005) == DISTINCT
    groups = {group.name: group.spec().budget.measurements for group in SMALL["diffusion-curves"].groups}
    assert groups["seiko-queries"] == round(DISTINCT * groups["pure-seiko"])


def test_curves_of_equal_runs_are_not_ahead(tmp_path):
    behind, trajectories, seconds = finished("diffusion-curves", tmp_path)["checks"]
    assert behind["passed"], "nor behind"
    assert "behind at 0 of 5 updates; the smallest lead is +0.000 ± 0.000, at 10 queries" in behind["observed"]
    assert not trajectories["passed"]
    assert not seconds["passed"]


def test_labels_on_the_way_are_worth_as_many_final_ones_as_reach_the_same_reward():
    sizes, slope = (20, 80, 320), 0.3
    finals = [slope * math.log(n) for n in sizes]
    assert worth(slope * math.log(57), sizes, finals) == pytest.approx(57.0, abs=0.05)
    assert worth(finals[0] - 0.1, sizes, finals) is None
    assert worth(1.5, sizes, (1.0, 2.0, 1.9)) is None, "a curve that falls has no inverse"


def taste(states, finals):
    """computed.json of the item: rewards by n and preference."""
    found = {}
    for arm, by_size in (("states", states), ("finals", finals)):
        for n, rewards in by_size.items():
            for preference, reward in enumerate(rewards):
                value = dict.fromkeys(("reward_held_out", "classifier_accuracy", "diversity", "kl", "kl_whole"), 1.0)
                arguments = {"arm": arm, "n": n, "preference": preference}
                found[f"{arm} {n} {preference}"] = {"arguments": arguments, "value": value | {"reward": reward}}
    return analyze({}, found)


def test_the_crossing_is_judged_in_pairs():
    finals = {20: [1.0, 3.0], 80: [2.0, 4.0]}
    above = taste({20: [1.5, 3.6]}, finals)
    few, many = above.checks
    assert few.passed, "0.55 ± 0.05 above, although preferences differ by 2"
    assert not many.passed
    assert "difference -0.450 ± 0.050" in many.observed
    (row,) = (row for row in above.table.rows if row[1] == 20 and row[2] == 80)
    assert row[above.table.columns.index("worth final labels on")] == pytest.approx(20 * 4**0.55, abs=0.05)
    same = taste({20: [2.0, 4.0]}, finals)
    assert same.checks[1].passed, "equal is at least as good"
