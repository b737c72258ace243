"""The paper's items on invented runs with known results, read and drawn as real ones are."""

import csv
import itertools
import json
import math
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from small import SMALL, make, noise, pretend

from purectrl.core import InputError, StoreError
from purectrl.paper import ITEMS, environments, load_item, thm1_minimax, thm3_rollouts
from purectrl.paper.item import Group, Item
from purectrl.paper.load import load_runs
from purectrl.paper.output import write_item
from purectrl.paper.results import MAX_COLUMNS


def flat(group, seed):
    """Every run says the same but for its noise."""
    gap = 0.2 + 0.1 * noise(group, seed)
    theory = {"gap": gap, "covered": True, "radius_needed": 0.1 + gap, "gap_random": 2.0, "gap_final": 0.1}
    theory |= {"determinant_doublings": 20.0}
    control = {"return": 1.0 - gap, "reward": 1.0 - gap, "reward_min": 0.5, "reward_after_5": 0.99, "solved": True}
    return theory | control | diffusion(1.0 - gap)


def diffusion(reward):
    """What a run on the digits says."""
    before = {"reward_pretrained": 0.6, "reward_held_out_pretrained": 0.55, "classifier_accuracy_pretrained": 0.97}
    after = {
        "reward": reward,
        "reward_held_out": 0.7,
        "classifier_accuracy": 0.99,
        "diversity": 0.13,
        "kl_pretrained": 9.0,
    }
    spent = {"queries": 10, "network_evaluations": 100, "reward_curve": [[10, 0.7], [20, reward]]}
    spent |= {"reward_by_class": [reward] * 10}
    return before | after | spent | {"diversity_pretrained": 0.19}


def finished(name, out, metrics=flat, **more):
    """numbers.json of the item, after made-up runs."""
    pretend(SMALL[name], out / name, metrics, **more)
    assert make(name, out, quiet=True) == 0
    return json.loads((out / name / "numbers.json").read_text())


@pytest.mark.parametrize("name", ITEMS)
def test_runs_that_items_share_are_the_same_runs(name):
    for group in load_item(name).groups:
        if group.home:
            item, _, owner = group.home.partition("/")
            assert item != name
            (shared,) = (other for other in load_item(item).groups if other.name == owner)
            assert shared.home is None
            assert shared.spec().as_dict() == group.spec().as_dict()


def test_listing_items_imports_neither_jax_nor_matplotlib():
    program = (
        "import sys, purectrl.paper as p; p.describe_items(); print({'jax', 'matplotlib', 'scipy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("name", sorted(SMALL))
def test_an_item_leaves_figure_table_and_numbers(tmp_path, name):
    found = finished(name, tmp_path)
    folder = tmp_path / name
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "figure.pdf").read_bytes().startswith(b"%PDF")
    assert found["item"] == name
    assert found["command"].startswith(f"purectrl paper {name} --out ")
    assert found["versions"]["purectrl"]
    assert found["checks"]
    rows = list(csv.reader((folder / "table.csv").read_text().splitlines()))
    assert tuple(rows[0]) == tuple(found["table"]["columns"])
    assert len(rows) - 1 == len(found["table"]["rows"])
    shown = (folder / "table.md").read_text().splitlines()
    assert shown[0].count("|") - 1 <= MAX_COLUMNS  # the rest is below: a wide table is turned
    assert (shown[0].count("|") - 1, len(shown) - 2) in {(len(rows[0]), len(rows) - 1), (len(rows), len(rows[0]) - 1)}
    content = [(folder / file).read_bytes() for file in ("figure.png", "figure.pdf", "numbers.json")]
    assert len(content[0]) < 160_000
    assert len(content[2]) < 60_000
    assert make(name, tmp_path, quiet=True) == 0
    assert [(folder / file).read_bytes() for file in ("figure.png", "figure.pdf", "numbers.json")] == content


@pytest.mark.parametrize("name", sorted(SMALL))
def test_nothing_in_a_figure_is_small_or_outside(tmp_path, name):
    figure = SMALL[name].draw(finished(name, tmp_path)["numbers"])
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    for axes in figure.axes:
        texts = [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.get_xticklabels(), *axes.get_yticklabels()]
        shown = [text for text in texts if text.get_text() and text.get_visible()]
        assert shown
        assert min(text.get_fontsize() for text in shown) >= 9
        ticks = [text for text in axes.get_xticklabels() if text.get_text()]
        boxes = [text.get_window_extent(renderer) for text in ticks]
        assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes)), "tick labels overlap"
        whole = axes.get_tightbbox(renderer)
        assert figure.bbox.x0 <= whole.x0
        assert whole.x1 <= figure.bbox.x1 + 1


def test_coverage_counts_the_runs_that_were_covered_throughout(tmp_path):
    missed = {"lqr-theorem": {1, 2, 5}, "finite-theorem": {7}, "lqr-anytime": set(), "finite-anytime": {3}}

    def metrics(group, seed):
        inside = seed not in missed[group.name]
        return {"covered": inside, "radius_needed": (seed + 1) / 40 if inside else 1.5}

    found = finished("thm1-coverage", tmp_path, metrics)
    finite, lqr, _, anytime, *sequences = found["numbers"]["rows"]
    assert found["numbers"]["failed_seeds"] == {name: sorted(seeds) for name, seeds in missed.items()}
    assert (lqr["share"], finite["share"]) == (17 / 20, 19 / 20)
    assert lqr["95% low"] < 0.85 < lqr["95% high"]
    assert [check["passed"] for check in found["checks"][:4]] == [True, False, True, True]
    assert [row["classes"].split(",")[0] for row in sequences] == ["linear", "linear", "kernel", "kernel"]
    assert {row["runs"] for row in sequences} == {20}
    for one in found["numbers"]["radius_shares"].values():
        assert max(*one["drift"], *one["reward"]) < 0.25  # smaller than for lists
    assert lqr["radius needed for 1 − δ"] == 1.5
    assert anytime["radius needed for 1 − δ"] == 19 / 40  # of 1/40 … 20/40, the tenth part is above
    curve = dict(zip(found["numbers"]["scales"], found["numbers"]["calibration"][anytime["classes"]], strict=True))
    assert curve == sorted_curve(curve)
    assert [share for scale, share in curve.items() if scale >= 0.5] == [1.0] * sum(scale >= 0.5 for scale in curve)
    assert max(share for scale, share in curve.items() if scale < 0.25) <= 0.5


def sorted_curve(curve):
    """The same with shares that do not fall."""
    return dict(zip(curve, sorted(curve.values()), strict=True))


@pytest.mark.parametrize(
    "name",
    [
        "thm1-rate",
        "thm1-minimax",
        "thm2-switches",
        "thm2-repair",
        "thm2-dimension",
        "thm3-rollouts",
        "neural-pendulum",
        "neural-systems",
    ],
)
def test_every_item_of_the_theory_has_coverage_as_a_criterion(tmp_path, name):
    seeds = SMALL[name].seeds

    def metrics(group, seed):
        return flat(group, seed) | {"covered": seed < seeds - 1, "gap": 0.1 + 1.0 / (group.measurements or 1)}

    found = finished(name, tmp_path, metrics, ledger=lambda group, seed: {"updates": 3})
    (check,) = (check for check in found["checks"] if "confidence sets" in check["criterion"])
    assert check["passed"] == ((seeds - 1) / seeds >= 0.9)
    assert not check["passed"]


def test_rate_finds_the_exponent_of_a_power_law(tmp_path):
    exponent = {"finite": -0.5, "lqr": -0.25}

    def metrics(group, seed):
        gap = (1 + noise(group, seed)) * group.measurements ** exponent[group.problem]
        other = {"lqr": "-theorem", "finite": "-anytime"}[group.problem]
        factor = {"lqr": 4.0, "finite": 0.75}[group.problem] if group.name.endswith(other) else 1.0
        return {"gap": factor * gap, "covered": True}

    def ledger(group, seed):
        N = group.measurements
        plan = 0.1 * N if group.algorithm == "pure-base" else 0.0
        return {"updates": N, "seconds": {"plan": plan}}

    found = finished("thm1-rate", tmp_path, metrics, ledger=ledger)
    for series in found["numbers"]["series"]:
        expected = exponent[series["label"].split(",")[0]]
        assert series["slope"]["value"] == pytest.approx(expected)
        assert series["local_slopes"] == pytest.approx([expected] * (len(series["regret"]["x"]) - 1))
        assert series["regret"]["x"] == sorted(series["regret"]["x"])
        assert len(series["regret"]["seeds"][0]) == 5
    base = found["numbers"]["series"][0]
    assert base["label"] == "lqr, PURE base"
    assert base["seconds"]["mean"] == [pytest.approx(0.1 * N) for N in (256, 1024)]
    passed = {check["criterion"].split(":")[0]: check["passed"] for check in found["checks"][1:6]}
    assert passed == {label: label.startswith("finite") for label in passed}
    assert len(passed) == 5
    shares = {one["label"]: one["share"]["value"] for one in found["numbers"]["radii"]}
    assert shares == pytest.approx(
        {"finite, PURE base": 0.75, "finite, PURE LowSwitch": 0.75, "lqr, PURE LowSwitch": 0.25}, rel=0.1
    )
    assert [check["passed"] for check in found["checks"][6:]] == [False, False, True]


@pytest.mark.parametrize(("growth", "linear"), [(lambda N: 4 * round(math.log2(N)), True), (lambda N: N**2, False)])
def test_switches_are_linear_in_log_n_or_not(tmp_path, growth, linear):
    times = {"pure-base": 1.0, "pure-low-switch": 3.0}

    def ledger(group, seed):
        N = group.measurements
        fewer = 1 if group.overrides.get("schedule.renew") == "both" else 0
        return {"updates": 10_000 * N if group.algorithm == "pure-base" else growth(N) + seed - fewer}

    def metrics(group, seed):
        gap = times[group.algorithm] * (1 + noise(group, seed)) * group.overrides.get("schedule.threshold", 5.0)
        return {"gap": gap, "covered": True}

    found = finished("thm2-switches", tmp_path, metrics, ledger=ledger)
    coverage, fewest, share, shape, regret, repaired, cheap = (check["passed"] for check in found["checks"])
    assert (fewest, share, shape) == (True, True, linear)
    assert coverage
    assert repaired
    assert cheap
    assert regret
    assert [row["ratio"] for row in found["numbers"]["ratios"]] == pytest.approx([3.0] * 3)
    thresholds = {row["threshold"]: row["ratio"] for row in found["numbers"]["thresholds"]}
    assert thresholds == pytest.approx({1.0: 0.6, 5.0: 3.0, 10.0: 6.0})
    if linear:
        assert found["numbers"]["linear_fit"][0] == pytest.approx(4.0)


@pytest.mark.parametrize(("seed_with_more", "passed"), [(None, True), (3, False)])
def test_the_repair_is_worse_in_a_pair_or_not(tmp_path, seed_with_more, passed):
    def more(group, seed):
        both = group.overrides["schedule.renew"] == "both"
        return both and seed == seed_with_more and group.label == "default"

    def ledger(group, seed):
        return {"updates": 6 if more(group, seed) else 4 if group.overrides["schedule.renew"] == "both" else 5}

    def metrics(group, seed):
        share = 0.5 if group.overrides["schedule.renew"] == "both" else 1.0
        return {"gap": (1.2 if more(group, seed) else share) * (1 + noise(group, seed)), "covered": True}

    found = finished("thm2-repair", tmp_path, metrics, ledger=ledger)
    checks = {check["criterion"]: check for check in found["checks"]}
    default, low = ([checks[one] for one in checks if one.startswith(label)] for label in ("default", "low noise"))
    assert [check["passed"] for check in default] == [passed, passed, True]
    assert [check["passed"] for check in low] == [True] * 3
    assert low[2]["observed"] == "0.500 [0.500, 0.500] times"
    assert default[0]["observed"].startswith(f"more in {0 if passed else 1} of 5 pairs")


@pytest.mark.parametrize(("plans", "passed"), [((4, 5), True), ((4, 7), False)])
def test_policy_changes_grow_with_the_dimension_or_not(tmp_path, plans, passed):
    def ledger(group, seed):
        count = plans[group.arguments["dimension"] - 1] - 1  # the first plan is no change
        return {"updates": count, "policy_changes": count}

    found = finished("thm2-dimension", tmp_path, ledger=ledger)
    checks = {" ".join(check["criterion"].split(" ")[:2]): check["passed"] for check in found["checks"]}
    for kind, growth in (("linear", 3 / 2), ("kernel", 15 / 8)):  # of the number of features
        one = found["numbers"][kind]
        assert one["exponent"]["value"] == pytest.approx(math.log(plans[1] / plans[0]) / math.log(growth))
        assert one["within"]["d = 1"]["y"] == [0, 0, 0, 0, 1, 3, 5]  # the invented records: one per 10 of 50
        assert checks[f"{kind}: policy"]
        assert checks[f"{kind}: fewer"]
    assert checks["linear: exponent"] == passed
    assert checks["kernel: exponent"]


@pytest.mark.parametrize("exponent", [0.5, 0.1])
def test_the_regret_grows_as_a_power_of_c_or_not(tmp_path, exponent):
    known = {one.name: one.function(**one.arguments) for one in SMALL["thm3-rollouts"].computations}

    def metrics(group, seed):
        coefficient = min(known[group.label]["C"], 1e6)
        return {"gap": 1e-3 * (1 + noise(group, seed)) * coefficient**exponent, "covered": True}

    found = finished("thm3-rollouts", tmp_path, metrics)
    assert found["numbers"]["exponents"]["correlated"]["value"] == pytest.approx(exponent)
    assert found["numbers"]["exponents"]["uninformative"]["value"] == pytest.approx(exponent)
    coverage, correlated, uninformative, rival, bound = (check["passed"] for check in found["checks"])
    assert (coverage, correlated, uninformative, bound) == (True, exponent == 0.5, exponent == 0.5, True)
    assert rival == (exponent != 0.5)
    rows = {(row["kind"], row["mixing time / T"], row["m"], row["C"]): row for row in found["numbers"]["rows"]}
    assert len(rows) == 9
    infinite = rows["uninformative", 1.0, 1, "∞"]
    assert infinite["bound"] == "∞"
    assert "1 infinite, not drawn" in SMALL["thm3-rollouts"].draw(found["numbers"]).axes[0].get_title()


@pytest.mark.parametrize(("exponent", "passed"), [(-0.5, True), (-0.45, False), (-0.56, False)])
def test_the_minimax_rate_is_neither_slower_nor_faster(tmp_path, exponent, passed):
    def metrics(group, seed):
        over = group.arguments.get("horizon", 1) * group.arguments.get("dimension", 1) ** (exponent + 1.5)
        noisier = group.arguments.get("reward_std", 1) ** (2 * exponent + 2)
        return {"gap": (1 + noise(group, seed)) * over * noisier * group.measurements**exponent, "covered": True}

    found = finished("thm1-minimax", tmp_path, metrics)
    sweeps = {one["name"]: one for one in found["numbers"]["sweeps"]}
    assert [sweeps[name]["exponent"]["value"] for name in ("dimension", "horizon", "reward_std")] == pytest.approx(
        [exponent + 1.5, 1.0, 2 * exponent + 2]
    )
    assert sweeps["horizon"]["exponent of the bound"] == pytest.approx(1.0)
    assert sweeps["reward_std"]["exponent of the bound"] == pytest.approx(1.0)
    assert 0.5 < sweeps["dimension"]["exponent of the bound"] < 1.0
    one = found["numbers"]["series"][0]
    assert one["slope"]["value"] == pytest.approx(exponent)
    assert one["local"] == pytest.approx([exponent])
    by_text = {check["criterion"]: check["passed"] for check in found["checks"]}
    rates = [value for text, value in by_text.items() if "slope of log regret" in text]
    assert rates == [passed] * 3


def test_radii_that_items_compute_without_jax_are_those_of_the_learner():
    from purectrl.theory.confidence import ville_radius

    assert ville_radius(2, 0.05) == pytest.approx(thm1_minimax.BETA)
    assert thm3_rollouts._beta() == pytest.approx(ville_radius(2, 0.05, thm3_rollouts.REWARD_STD))


def test_the_closed_form_keeps_below_the_bound(tmp_path):
    found = finished("prop2-independency", tmp_path, lambda group, seed: {"gap": 0.0, "covered": True})
    assert found["numbers"]["runs"]["16"]["measurements"] == 50  # the invented records have one reward left at the end
    assert all(check["passed"] for check in found["checks"])
    for case in found["numbers"]["cases"]:
        assert case["value"] == sorted(case["value"])
        assert np.all(np.array(case["value"]) <= np.array(case["bound"]))
        assert case["m"] == list(range(1, 17))


def test_quick_takes_the_first_seeds(tmp_path):
    pretend(SMALL["thm2-switches"], tmp_path / "thm2-switches", flat)
    assert make("thm2-switches", tmp_path, quiet=True, quick=True) == 0
    found = json.loads((tmp_path / "thm2-switches" / "numbers.json").read_text())
    assert found["seeds"] == [0, 1]
    assert found["runs"] == 2 * len(SMALL["thm2-switches"].groups)
    assert found["command"].endswith("--quick")


def test_two_groups_cannot_share_a_directory():
    group = Group("same", "one", "finite", "pure-base")
    with pytest.raises(InputError, match="two groups of twice have the same name"):
        Item("twice", "", analyze=None, draw=None, groups=(group, group))


@pytest.fixture
def item(tmp_path):
    """An item with all its runs, their directory, and one of them."""
    item, folder = SMALL["thm2-switches"], tmp_path / "thm2-switches"
    pretend(item, folder, flat)
    return item, folder, folder / "runs" / "base-N16" / "seed1"


def change(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def spoil(path, part, **values):
    content = json.loads(path.read_text())
    content[part] |= values
    path.write_text(json.dumps(content))


def test_control_compares_seeds_that_both_algorithms_have(tmp_path):
    def metrics(group, seed):
        # the third seed of PURE_ENODE, which ENODE does not have, would spoil the comparison
        reward = {"enode": 0.9, "pure-enode": 0.95 if seed < 2 else 0.1}[group.algorithm] + 0.01 * seed
        return {"reward": reward, "reward_min": 0.0, "reward_after_5": 0.9, "solved": seed != 1}

    def ledger(group, seed):
        updates, seconds = {"enode": (25, 100.0), "pure-enode": (6, 40.0)}[group.algorithm]
        return {"updates": updates, "seconds": {"total": seconds, "compile": 1.0}}

    found = finished("control-main", tmp_path, metrics, ledger=ledger)
    systems = found["numbers"]["systems"]
    assert {name: [len(entry[a]["seeds"]) for a in ("pure-enode", "enode")] for name, entry in systems.items()} == {
        "pendulum": [4, 4],
        "cartpole": [3, 2],
        "acrobot": [3, 2],
    }
    assert systems["cartpole"]["time_ratio"]["value"] == 0.4
    checks = {check["criterion"]: check for check in found["checks"]}
    assert checks["`pendulum`: solved on at least 80% of the seeds"]["observed"] == "3 of 4"
    assert checks["`cartpole`: at most 0.55 of the seconds of ENODE"]["observed"].endswith("6 updates against 25")
    reward = checks["`cartpole`: reward of PURE_ENODE within one standard deviation of ENODE's, or better"]
    assert reward["passed"]
    assert reward["observed"] == "0.955 against 0.905, 2 seeds, standard deviation 0.007"
    assert not checks["`acrobot`: mean reward at least 0.94 on at least 60% of the seeds"]["observed"].startswith("3")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: (run / "summary.json").unlink(), "1 of 33 runs of thm2-switches are missing or have not finished"),
        (lambda run: change(run / "summary.json", seed=7), "seed is 7 and should be 1"),
        (lambda run: change(run / "summary.json", status="stopped"), "status is 'stopped' and should be 'finished'"),
        (lambda run: change(run / "summary.json", versions=None), "does not name the package versions"),
        (lambda run: spoil(run / "summary.json", "versions", jax="0.0.1"), "was run with jax 0.0.1, other runs with"),
        (lambda run: spoil(run / "config.json", "versions", jax="0.0.1"), "was run with jax 0.0.1, other runs with"),
        (
            lambda run: spoil(run / "config.json", "budget", measurements=9),
            "other settings: budget.measurements is 9 there",
        ),
        (lambda run: spoil(run / "summary.json", "metrics", gap=None), "gap is None and should be a number"),
    ],
)
def test_a_run_that_does_not_belong_is_named_and_refused(item, damage, message):
    item, folder, run = item
    damage(run)
    with pytest.raises(StoreError, match=message) as refusal:
        write_item(item, folder, range(3), "command")
    assert str(run) in str(refusal.value)
    assert not (folder / "numbers.json").exists()


def test_missing_runs_are_not_mixed_with_those_of_other_versions(item):
    item, folder, run = item
    for path in folder.rglob("config.json"):
        spoil(path, "versions", jax="0.0.1")
    for path in folder.rglob("summary.json"):
        spoil(path, "versions", jax="0.0.1")
    assert len(load_runs(item, folder, range(3))) == len(item.groups)  # all of one version: they may be drawn
    (run / "summary.json").unlink()
    with pytest.raises(StoreError, match=r"was run with jax 0\.0\.1, new runs with jax"):
        make("thm2-switches", folder.parent)


def test_computed_numbers_are_kept_and_refused_if_made_otherwise(tmp_path, capsys):
    assert make("prop2-independency", tmp_path) == 0
    assert "computed T=1 u_min=1" in capsys.readouterr().out
    assert make("prop2-independency", tmp_path) == 0
    assert "computed T=" not in capsys.readouterr().out
    path = tmp_path / "prop2-independency" / "computed.json"
    content = json.loads(path.read_text())
    del content["T=4 u_min=1"]
    path.write_text(json.dumps(content))
    with pytest.raises(StoreError, match="lacks 'T=4 u_min=1'"):
        write_item(SMALL["prop2-independency"], path.parent, [], "command")
    assert make("prop2-independency", tmp_path) == 0
    assert capsys.readouterr().out.count("computed T=") == 1
    content["T=1 u_min=1"]["arguments"]["most"] = 99
    path.write_text(json.dumps(content))
    with pytest.raises(StoreError, match="'T=1 u_min=1' was computed with other arguments"):
        make("prop2-independency", tmp_path)
    path.write_text("[]")
    with pytest.raises(StoreError, match="was not written by `purectrl paper`"):
        make("prop2-independency", tmp_path)


def unlike(**by_algorithm):
    """Metrics of the digits that depend on the algorithm."""
    return lambda group, seed: diffusion(0.85) | by_algorithm.get(group.algorithm.replace("-", "_"), {})


def test_pure_seiko_is_measured_against_seiko(tmp_path):
    metrics = unlike(pure_seiko={"network_evaluations": 40}, seiko={"reward": 0.86})
    ledger = lambda group, seed: {"seconds": {"total": 4.5 if group.algorithm == "pure-seiko" else 10.0}}  # noqa: E731
    found = finished("diffusion-main", tmp_path, metrics, ledger=ledger)
    checks = {check["criterion"]: check for check in found["checks"]}
    assert checks["exactly one quarter of SEIKO's trajectories"]["passed"]
    assert checks["at most 0.5 of its denoiser evaluations"]["observed"] == "0.40"
    assert checks["at most 0.5 of its seconds"]["observed"].startswith("0.45")
    assert checks["a run in at most 5 minutes"]["passed"]
    within = checks["reward of PURE_SEIKO within one standard deviation of SEIKO's, or better"]
    assert not within["passed"], "0.85 is below 0.86, and the seeds do not differ"
    assert "0.850 against 0.860, 3 seeds" in within["observed"]


def test_seconds_of_trajectories_and_of_queries_are_separate(tmp_path):
    group = finished("diffusion-main", tmp_path)["numbers"]["groups"][0]
    assert {name: values[0] for name, values in group["seconds"].items()} == pytest.approx(
        {"denoising": 0.5, "queries": 1.0, "fit": 0.5, "plan": 0.5, "rest": 1.5}
    )


def test_a_reward_that_rises_at_the_cost_of_the_rest_fails(tmp_path):
    found = finished(
        "diffusion-main", tmp_path, unlike(pure_seiko={"classifier_accuracy": 0.4, "reward_held_out": 0.5})
    )
    failed = [check["criterion"] for check in found["checks"] if not check["passed"]]
    assert "the classifier accuracy not below the pretrained model's" in failed
    assert "its reward on held-out classes clearly above the pretrained model's" in failed


def test_a_log_that_is_no_log_is_named(tmp_path):
    pretend(SMALL["diffusion-updates"], tmp_path / "diffusion-updates", flat)
    logs = sorted(tmp_path.glob("*/runs/K2/*/queries.jsonl"))
    logs[0].write_text('{"condition": 3}\n')
    with pytest.raises(StoreError, match=r"queries.jsonl is not the log of a reward"):
        write_item(SMALL["diffusion-updates"], tmp_path / "diffusion-updates", range(2), "command")


def test_items_share_runs(tmp_path):
    item = SMALL["diffusion-frequency"]
    pretend(item, tmp_path / item.name, flat)
    assert sorted(path.name for path in (tmp_path / "diffusion-main" / "runs").iterdir()) == ["pure-seiko", "seiko"]
    assert [path.name for path in (tmp_path / item.name / "runs").iterdir()] == ["m40"]


def test_samples_of_all_models_stand_side_by_side(tmp_path):
    found = finished("diffusion-samples", tmp_path)
    assert list(found["numbers"]["models"]) == ["pretrained", "SEIKO", "PURE_SEIKO"]
    assert [check["passed"] for check in found["checks"]] == [True]
    assert found["table"]["rows"][0] == pytest.approx([0, 0.0132, 0.2632, 0.2632], abs=1e-3)


@pytest.mark.parametrize("name", ["control-main", "diffusion-main"])
def test_a_half_written_record_is_named_and_refused(name, tmp_path, capsys):
    pretend(SMALL[name], tmp_path / name, flat)
    file = min((tmp_path / name).rglob("records.jsonl"))
    file.write_text(file.read_text()[:-9])
    with pytest.raises(StoreError, match="line 5 is not JSON") as refusal:
        make(name, tmp_path, quiet=True)
    assert str(file) in str(refusal.value)


def test_a_summary_without_a_list_that_is_needed_is_named_and_refused(tmp_path):
    pretend(SMALL["diffusion-main"], tmp_path / "diffusion-main", flat)
    file = min((tmp_path / "diffusion-main").rglob("summary.json"))
    spoil(file, "metrics", reward_curve=None)
    with pytest.raises(StoreError, match="has no reward_curve") as refusal:
        make("diffusion-main", tmp_path, quiet=True)
    assert str(file) in str(refusal.value)


def test_two_seeds_have_no_interval(tmp_path):
    found = finished("control-updates", tmp_path)
    groups = found["numbers"]["groups"]
    assert {len(group["seeds"]) for group in groups} == {2}
    assert all(group["reward_mean"]["low"] is None and group["reward_sd"] >= 0 for group in groups)


def test_the_battery_compares_with_the_ceiling_and_with_the_best_policy_of_each_run(tmp_path):
    """Nine problems at 0.97 of the ceiling, three at 0.5 of it; every run has seen an evaluation of 0.9 on the way."""
    poor = {"furuta", "bicycle", "two-rooms"}

    def metrics(group, seed):
        value = 1.0 if group.algorithm == "known-model" else 0.5 if group.problem in poor else 0.97
        return {"reward": value, "return": value}

    spent = lambda group, seed: {"measurements": 900 if group.problem == "pendulum" else 3100}  # noqa: E731
    found = finished("battery", tmp_path, metrics, ledger=spent)
    rows = {row["problem"]: row for row in found["numbers"]["problems"]}
    assert len(rows) == 12
    assert rows["furuta"]["share"] == 0.5
    assert rows["furuta"]["drop"] == pytest.approx(0.4)
    assert rows["pendulum"]["drop"] == 0.0
    assert [check["passed"] for check in found["checks"]] == [False, False, True, False, False]
    assert "9 of 12" in found["checks"][0]["observed"]


def test_an_environment_is_learned_if_enough_seeds_reach_its_goal(tmp_path):
    """Reacher-v5 is learned with one of two seeds, the others with both; SAC learns none."""

    def metrics(group, seed):
        goal = environments.GOALS[group.arguments["env"]]
        reached = group.algorithm == "pure-auto" and (group.label != "Reacher-v5" or seed == 0)
        return {"return": goal + (1.0 if reached else -1.0)}

    found = finished("environments", tmp_path, metrics, ledger=lambda group, seed: {"measurements": 800})
    assert [check["passed"] for check in found["checks"]] == [True, True, True, True, False]
    assert "1 of 2; returns -7.0 to -5.0 with 800 to 800 steps" in found["checks"][-1]["observed"]


def test_locomotion_compares_with_sac(tmp_path):
    def metrics(group, seed):
        return {"return": 1.0 if (group.algorithm == "sac") == (group.label == "Swimmer-v5") else 2.0}

    found = finished("locomotion", tmp_path, metrics, ledger=lambda group, seed: {"measurements": 800})
    assert [check["passed"] for check in found["checks"]] == [False, True]
    assert found["checks"][0]["observed"] == "1.0 with 800 steps, SAC 2.0"
