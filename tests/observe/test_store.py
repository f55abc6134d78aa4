from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asaplab.core import Batching, Pipeline, System, Transport
from asaplab.errors import InputError
from asaplab.observe import load, save, system_from_dict, to_plain
from asaplab.scheduler import NAMED, named
from tests.observe.runs import known_run


def same_columns(a, b):
    assert list(a) == list(b)
    for name in a:
        assert a[name].dtype.kind == b[name].dtype.kind, name
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_run_comes_back_as_it_was(tmp_path, name):
    run = known_run(named(name))
    again = load(save(run, tmp_path / "deep" / "run"))
    assert again.system == run.system
    assert isinstance(again.system.pipeline.overlap, frozenset)
    assert again.instance == run.instance
    assert (again.mode, again.excluded) == (run.mode, run.excluded)
    assert again.utilization == run.utilization
    assert again.provenance == run.provenance
    assert again.configuration == {"seed": 4, "overlap": ["moe"], "shape": [2, 1, 2]}
    same_columns(run.requests, again.requests)
    same_columns(run.spans, again.spans)


def test_a_run_without_spans_comes_back_with_empty_columns(tmp_path):
    again = load(save(known_run(spans={}), tmp_path))
    assert again.spans["start_s"].dtype == np.float64
    assert all(len(column) == 0 for column in again.spans.values())


@given(
    overlap=st.frozensets(st.sampled_from(["attention", "moe"])),
    in_flight=st.integers(1, 4),
    threshold=st.integers(1, 10**6),
    wait=st.floats(0, 1e6),
)
@settings(max_examples=50, deadline=None)
def test_every_system_comes_back_equal(overlap, in_flight, threshold, wait):
    import json

    system = System(
        name="any",
        batching=Batching(threshold_tokens=threshold, longest_wait_s=wait),
        pipeline=Pipeline(overlap=overlap, in_flight=in_flight),
        transport=Transport(slots=in_flight),
    )
    assert system_from_dict(json.loads(json.dumps(to_plain(system)))) == system


def test_what_is_not_a_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no run"):
        load(tmp_path / "missing")
    save(known_run(), tmp_path)
    (tmp_path / "spans.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(InputError, match=r"spans\.parquet is missing or damaged"):
        load(tmp_path)
    (tmp_path / "run.json").write_text('{"format": 99}')
    with pytest.raises(InputError, match="has format 99"):
        load(tmp_path)


def test_an_unknown_field_of_a_system_is_refused():
    plain = to_plain(named("asap"))
    plain["pipeline"]["warp"] = 9
    with pytest.raises(InputError, match="pipeline has no field 'warp'"):
        system_from_dict(plain)


def test_a_broken_combination_is_refused_on_loading():
    plain = to_plain(named("asap"))
    plain["transport"]["slots"] = 1
    with pytest.raises(InputError, match="deadlock"):
        system_from_dict(plain)


def test_saving_again_replaces(tmp_path):
    save(known_run(), tmp_path)
    save(replace(known_run(), excluded=0), tmp_path)
    assert load(tmp_path).excluded == 0
