"""Every named system serves real traffic to the end, at low load and far beyond what it can sustain."""

import pytest

from asaplab.scheduler import NAMED, named
from asaplab.workload import poisson
from tests.scheduler.drive import drive


def service(group, batch):
    """A batch takes 0.4 s for 32k tokens in small pieces, four times that in one: the disparity of Figure 4."""
    return batch.tokens * 1e-5 + batch.sum_squares * 1e-9


def cost(tokens, squares):
    return tokens * 1e-5 + squares * 1e-9


@pytest.mark.parametrize("rps", [0.5, 8, 200])
@pytest.mark.parametrize("name", sorted(NAMED))
def test_all_requests_are_served_once(name, rps):
    requests = list(poisson(rps=rps, requests=300, seed=7))
    log = drive(named(name), 4, requests, service, cost)
    served = {}
    for _, _, batch in log.batches:
        for piece in batch.pieces:
            served[piece.request] = served.get(piece.request, 0) + piece.tokens
    assert served == {request.id: request.tokens for request in requests}


@pytest.mark.parametrize("name", sorted(NAMED))
def test_no_request_waits_for_company_on_an_idle_instance(name):
    """With minutes between arrivals each request starts within the longest wait, whatever the system."""
    system = named(name)
    requests = [r._replace(arrival_s=60.0 * r.id) for r in poisson(rps=1, requests=20, seed=3)]
    started = drive(system, 4, requests, service, cost).started_at
    for request in requests:
        assert started[request.id] - request.arrival_s <= system.batching.longest_wait_s + 1e-9
