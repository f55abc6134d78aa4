"""What ``bench engine`` prints and keeps: shapes with a known instance in place of processes, quick for real."""

import contextlib
import json
import os
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from asaplab import models
from asaplab.cli import main
from asaplab.core import TTFT_PARTS, Instance
from asaplab.errors import InputError
from asaplab.lab import (
    bench_engine,
    bench_factorial,
    bench_paced,
    bench_predicted,
    bench_progress,
    bench_shared_cores,
    bench_slo,
)
from asaplab.lab.bench_engine import bench
from asaplab.lab.bench_factorial import OPTIMIZATIONS, combination, combinations, cost_of, effects
from asaplab.lab.bench_slo import EVEN_SPLIT
from asaplab.lab.sustained import Seen
from asaplab.models.checkpoint import Checkpoint
from asaplab.models.counts import counts
from asaplab.profiles.nominal import nominal_costs
from asaplab.profiles.shapes import MODELS
from asaplab.scheduler import named
from asaplab.twin import setting_of
from tests.twin.settings import FREE, stage

SPEEDS = {"default": 10 * 1.5**4 / 2, "chunked": 22.0, "asap-p2p": 30.0, "asap": 10 * 1.5**4}
SPEEDS |= {"asap-refill-slot": 44.0, "asap-even-split": 32.0}
EFFICIENCY = {"value": 0.9, "ci95": [0.88, 0.92]}


@pytest.fixture
def known(monkeypatch):
    """Instances whose mean TTFT is a steep power of the rate; each optimization makes them half as fast again."""

    def predicted(traffic, slo_s, systems, repeats, seed, tell):
        rps = {name: {"value": SPEEDS[name], "ci95": None} for name in systems}
        tell("the twin", {"rps": rps, "slo_s": slo_s, "pace": 100.0})

    monkeypatch.setattr(bench_engine, "predicted_rates", predicted)
    for module in (bench_engine, bench_slo):
        monkeypatch.setattr(module, "pace", lambda traffic: 100.0)
    parts = dict.fromkeys(TTFT_PARTS, 0.1) | {"ttft": 1.0}
    monkeypatch.setattr(bench_factorial, "parts_of", lambda run: parts)
    monkeypatch.setattr(bench_engine, "slo_of", lambda traffic: 1.5)
    monkeypatch.setattr(bench_shared_cores, "disaggregation_efficiency", lambda *asked: EFFICIENCY)
    monkeypatch.setattr(bench_shared_cores, "reference_over_transformers", lambda *asked: {"qwen3_moe": 2.0})

    @contextlib.contextmanager
    def instance(system, traffic, split=None):
        if isinstance(system, str):
            capacity = SPEEDS[system]
        elif "[" in system.name:
            on = 0 if system.name == "asap[]" else system.name.count(",") + 1
            capacity = 10.0 * 1.5**on
        else:
            capacity = SPEEDS["asap-even-split" if split == bench_paced.EVEN else system.name]
        yield SimpleNamespace(capacity=capacity, prefill=lambda work: None)

    def ttft_at(live, traffic, rps, duration_s, seed):
        return 1.5 * (rps / live.capacity) ** 6 * (1 + 0.01 * seed)

    for module in (bench_engine, bench_slo, bench_factorial):
        monkeypatch.setattr(module, "instance", instance)
        monkeypatch.setattr(module, "ttft_at", ttft_at)


KEYS = {"mode", "disaggregation_efficiency", "reference_over_transformers", "slo_rps", "factorial", "net_cost"}


def test_everything_is_measured_and_kept(known, capsys, tmp_path):
    assert main(["bench", "engine", "--json", "--repeats", "2", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    result = json.loads(shown.out)
    assert result.keys() >= KEYS
    assert result["mode"] == "paced"
    assert result["disaggregation_efficiency"] == EFFICIENCY
    ((name, systems),) = result["slo_rps"].items()
    assert name == "paper/16"
    assert set(systems) == set(SPEEDS)
    assert systems["default"]["devices"] == "4 colocated"
    assert (systems["asap"]["devices"], systems["asap-even-split"]["devices"]) == ("3x1+1", "2x1+2")
    for system, found in systems.items():
        assert found["value"] == pytest.approx(SPEEDS[system], rel=0.01)
        low, high = found["ci95"]
        assert low < found["value"] < high
    assert result["slo"][name]["ratios"]["asap/default"]["value"] == pytest.approx(2.0, rel=0.02)
    assert result["twin"][name]["rps"].keys() == systems.keys()
    assert result["factorial"]["sustained"]
    assert len(result["factorial"]["rows"]) == 16
    for effect in result["factorial"]["effects"].values():
        assert effect["value"] == pytest.approx(1.5**-6, rel=0.01)
    assert result["net_cost"]["groups"]["barriers"]["value"] == 0.0
    kept = json.loads((tmp_path / "bench-engine.json").read_text())
    assert kept["complete"]
    assert kept["slo_rps"] == result["slo_rps"]
    assert kept["machine"]["cores"] >= 1
    assert "minutes to go" in shown.err


def test_an_interrupted_run_leaves_what_it_had(known, monkeypatch, tmp_path):
    def interrupted(*args, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_engine, "net_cost", interrupted)
    assert main(["bench", "engine", "--json", "--repeats", "2", "--out", str(tmp_path)]) == 130
    kept = json.loads((tmp_path / "bench-engine.json").read_text())
    assert not kept["complete"]
    assert len(kept["factorial"]["rows"]) == 16
    assert kept["net_cost"] is None


def test_a_part_alone(known):
    result = bench(parts=["factorial"], repeats=1)
    assert result["factorial"]["effects"]["overlap"]["ci95"] is None
    assert result["slo_rps"] is None
    assert result["disaggregation_efficiency"] is None


def test_parts_measured_in_turn_make_one_result(known, tmp_path, monkeypatch):
    bench(parts=["factorial"], repeats=1, out=tmp_path)
    first = json.loads((tmp_path / "bench-engine.json").read_text())
    result = bench(parts=["shared", "slo"], repeats=2, out=tmp_path)
    assert result["factorial"] == first["factorial"]
    assert result["disaggregation_efficiency"] == EFFICIENCY
    assert set(result["measured"]) == {"factorial", "shared", "slo/paper/16"}
    assert all(moment["load"] >= 0 for moment in result["measured"].values())
    monkeypatch.setattr(bench_progress, "machine", lambda: first["machine"] | {"processor": "another"})
    assert bench(parts=["shared"], repeats=1, out=tmp_path)["factorial"] is None  # another machine's is not kept


def test_an_slo_is_kept_as_long_as_the_clock_is_the_same(known, tmp_path, monkeypatch):
    bench(parts=["slo"], repeats=1, out=tmp_path)
    monkeypatch.setattr(bench_engine, "slo_of", lambda traffic: 3.0)
    assert bench(parts=["twin"], repeats=1, out=tmp_path)["twin"]["paper/16"]["slo_s"] == 1.5
    monkeypatch.setattr(bench_engine, "pace", lambda traffic: 200.0)
    assert bench(parts=["twin"], repeats=1, out=tmp_path)["twin"]["paper/16"]["slo_s"] == 3.0


def test_the_twin_of_each_contender_is_asked(monkeypatch):
    """A twin whose devices take a known time: the rate that it expects is below what they can serve, and near it."""
    traffic, costs = bench_paced.Traffic(name="equal", lengths=np.full(50, 256)), stage(attention=(0.0, 1e-4, 0.0))
    made = []

    @contextlib.contextmanager
    def instance(system, traffic, split=None):
        made.append((system.name, split))
        yield SimpleNamespace(prefill=lambda work: work, system=bench_paced.shrunk(system, split.E), split=split)

    def twin_of(live, alone):
        assert len(alone) == bench_predicted.SINGLE
        model = replace(MODELS["deepseek-v3"], L=1, dense=0)
        return setting_of(live.system, model=model, instance=live.split, costs=replace(FREE, stage=costs))

    monkeypatch.setattr(bench_predicted, "instance", instance)
    monkeypatch.setattr(bench_predicted, "twin_of", twin_of)
    pace = bench_paced.roofline(traffic, bench_paced.balanced(traffic)) / 100  # so that rates are looked for near 100
    monkeypatch.setattr(bench_predicted, "pace", lambda traffic: pace)
    heard = []
    found = bench_predicted.predicted_rates(traffic, 1.0, ("asap", EVEN_SPLIT), 2, 0, lambda *said: heard.append(said))
    assert made == [("asap", Instance(D=3, T=1, E=1)), ("asap", bench_paced.EVEN)]
    assert (found["slo_s"], found["pace"], len(heard)) == (1.0, pace, 2)
    for name, groups in (("asap", 3), (EVEN_SPLIT, 2)):
        assert 0.8 < found["rps"][name]["value"] / (groups / (256 * 1e-4)) < 1.03


@pytest.mark.slow
def test_quick_has_all_keys_and_measures_for_real(monkeypatch):
    monkeypatch.setattr(bench_engine, "FIXED_RPS", (8.0,))
    monkeypatch.setattr(bench_shared_cores, "FAMILIES", bench_shared_cores.TINY)
    result = bench(quick=True)
    assert result.keys() >= KEYS
    assert result["slo_rps"] is None
    assert [(row["system"], row["rps"]) for row in result["fixed_rates"]] == [("default", 8.0), ("asap", 8.0)]
    assert all(row["mean_ttft_s"] > 0 for row in result["fixed_rates"])
    efficiency = result["disaggregation_efficiency"]
    assert efficiency["value"] > 0
    low, high = efficiency["ci95"]
    assert low <= efficiency["value"] <= high
    assert 0 < efficiency["attention_share"] < 1
    assert set(result["reference_over_transformers"] or {}) <= {"deepseek_v3", "qwen3_moe"}
    json.dumps(result, allow_nan=False)


def test_sixteen_combinations_each_a_system_of_its_own():
    made = [combination(on) for on in combinations()]
    assert len({str(system) for system in made}) == 16
    assert made[-1] == named("asap")
    assert set(combinations()[-1]) == set(OPTIMIZATIONS)


def test_effects_are_of_paired_repetitions():
    times = {on: [0.5 if "overlap" in on else 1.0, 2.0 if "overlap" in on else 4.0] for on in combinations()}
    found = effects(times)
    assert found["overlap"]["value"] == pytest.approx(0.5)
    assert found["overlap"]["ci95"] == pytest.approx([0.5, 0.5])
    assert found["dual_batch"]["value"] == pytest.approx(1.0)


def test_net_cost_is_asap_minus_default_and_groups_hold_every_part():
    default = dict.fromkeys(TTFT_PARTS, 0.1) | {"barrier_wait": 0.5, "ttft": 1.4}
    asap = dict.fromkeys(TTFT_PARTS, 0.1) | {"barrier_wait": 0.0, "moe_queue": 0.2, "ttft": 1.0}
    found = cost_of({"default": [default], "asap": [asap]})
    assert found["groups"]["barriers"]["value"] == pytest.approx(-0.5)
    assert found["groups"]["queueing"]["value"] == pytest.approx(0.1)
    assert found["asap_minus_default"]["ttft"]["value"] == pytest.approx(-0.4)
    assert sorted(part for names in bench_factorial.GROUPS.values() for part in names) == sorted(TTFT_PARTS)


def test_token_counts_shrink_alike_and_the_host_delay_with_the_kernel():
    chunked = bench_paced.shrunk(named("chunked"), 2).batching
    assert (chunked.chunk_tokens, chunked.budget_tokens, chunked.solo_tokens) == (512, 2048, 1024)
    asap = bench_paced.shrunk(named("asap"), 2)
    assert asap.batching.threshold_tokens == 128
    assert asap.pipeline.dispatch_s == pytest.approx(bench_paced.floor_s(2) / 2)


def test_lengths_of_a_trace_and_what_is_left_out(tmp_path):
    trace = tmp_path / "mine.csv"
    trace.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,3200,10\n2023-11-16 18:15:47.0,64000,10\n2023-11-16 18:15:48.0,8,10\n"
    )
    (traffic,) = bench_paced.traffics([trace])
    assert (traffic.name, traffic.lengths.tolist(), traffic.excluded) == ("mine", [200, 1], 1)
    work = traffic.at(20.0, 5.0, seed=1)
    assert set(np.unique(work.tokens)) <= {200, 1}
    assert work.arrival_s[-1] <= 5.0


@pytest.mark.parametrize(("tokens", "devices"), [(16, "2x1+2"), (256, "3x1+1"), (2048, "3x1+1")])
def test_devices_follow_the_work_of_the_roles(tokens, devices):
    split = bench_paced.balanced(bench_paced.Traffic(name="equal", lengths=np.full(5, tokens)))
    assert bench_paced.devices(named("asap"), split) == devices
    config = Checkpoint(models.resolve(bench_paced.MODEL)).config
    batch = max(1, 128 // tokens)  # prompts that asap takes together

    def rate(D, E):
        costs = nominal_costs(counts(config), 1, config.E_total // E, shrink=16)
        layers = config.L, config.L - len(config.dense_layers)
        attention_s = layers[0] * costs.attention_s(batch * tokens, batch * tokens**2)
        moe_s = layers[1] * costs.moe_s(batch * tokens * config.K / E)
        return batch * min(D / attention_s, 1 / moe_s)

    assert rate(split.D, split.E) == max(rate(D, 4 - D) for D in (1, 2, 3))


def test_short_prompts_slow_the_clock_until_the_cores_can_pass_them_on(monkeypatch):
    monkeypatch.setattr(bench_paced, "pace_of", lambda *asked: 500.0)
    long, short = (bench_paced.Traffic(name="equal", lengths=np.full(5, n)) for n in (1024, 16))
    assert bench_paced.pace(long) == 500.0
    split, cores = bench_paced.balanced(short), len(os.sched_getaffinity(0))
    slowed = bench_paced.pace(short)
    assert bench_paced.roofline(short, split) / slowed == pytest.approx(bench_paced.CORE_RPS * cores)
    assert slowed > 500.0


def test_bad_input_names_the_rule(capsys):
    with pytest.raises(InputError, match="--repeats is 0; it must be at least 1"):
        bench(repeats=0)
    assert main(["bench", "twin", "--trace", "x.csv"]) == 2
    assert "belong to bench engine" in capsys.readouterr().err
    assert main(["bench", "engine", "--trace", "no/such.csv"]) == 2
    assert "no/such.csv" in capsys.readouterr().err


def test_shrunk_service_times_are_the_papers_at_a_sixteenth_of_the_tokens():
    model = counts(Checkpoint(models.resolve(bench_paced.MODEL)).config)
    whole, small = nominal_costs(model, 1, 4), nominal_costs(model, 1, 4, shrink=16)
    for tokens in (16, 320, 4096, 32768):
        alike = small.attention_s(tokens // 16, (tokens // 16) ** 2) * 16
        assert alike == pytest.approx(whole.attention_s(tokens, tokens**2))
        assert small.moe_s(tokens // 16) * 16 == pytest.approx(whole.moe_s(tokens))


def test_a_long_run_far_from_the_slo_is_repeated_nearer():
    runs = [Seen(8.0, 1.0)]  # a short run that was lucky: over a long one, 2 requests/s are the most

    def ttft_s(rps):
        return (rps / 2.0) ** 6

    run = bench_slo._near_slo(runs, 1.0, ttft_s)
    assert 0.5 <= run.ttft_s <= 2.0
    assert runs[-1] == run
    assert len(runs) > 2
