"""Bytes moved and allocated, on operators whose bytes are known."""

import torch

from penaltylab.bench.traffic import Traffic, traffic

ROWS, COLUMNS, IDS = 4, 1000, 10
DENSE = 4 * ROWS * COLUMNS
INDEX, VALUES = 8 * ROWS * IDS, 4 * ROWS * IDS


def dense() -> torch.Tensor:
    return torch.ones((ROWS, COLUMNS))


def ids() -> torch.Tensor:
    return torch.zeros((ROWS, IDS), dtype=torch.int64)


def test_an_addition_in_place_reads_two_and_writes_one() -> None:
    x, y = dense(), dense()
    assert traffic(lambda: x.add_(y)) == Traffic(1, moved=3 * DENSE)


def test_a_new_tensor_is_allocated_and_freed() -> None:
    x = dense()
    assert traffic(x.clone) == Traffic(1, moved=2 * DENSE, allocated=DENSE, peak=DENSE)


def test_temporaries_count_while_they_live() -> None:
    x = dense()
    counted = traffic(lambda: (x + x) * (x + x))
    assert (counted.operators, counted.allocated, counted.peak) == (3, 3 * DENSE, 3 * DENSE)
    counted = traffic(lambda: [x.clone() for _ in range(3)].clear() or x.clone())
    assert (counted.allocated, counted.peak) == (4 * DENSE, 3 * DENSE)


def test_views_move_nothing() -> None:
    x = dense()
    assert traffic(lambda: x[:, 5:].t().unsqueeze(0)) == Traffic()


def test_an_expanded_dimension_is_read_once() -> None:
    x, column = dense(), torch.ones((ROWS, 1))
    assert traffic(lambda: x.add_(column.expand(-1, COLUMNS))) == Traffic(1, moved=2 * DENSE + 4 * ROWS)


def test_gather_and_scatter_touch_what_the_index_names() -> None:
    x, where, values = dense(), ids(), torch.ones((ROWS, IDS))
    assert traffic(lambda: x.gather(1, where)) == Traffic(1, INDEX + 2 * VALUES, VALUES, 0, VALUES)
    assert traffic(lambda: x.scatter_(1, where, values)) == Traffic(1, moved=INDEX + 2 * VALUES)
    assert traffic(lambda: x.scatter_add_(1, where, values)) == Traffic(1, moved=INDEX + 3 * VALUES)
