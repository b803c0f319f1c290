"""The step counter and the batch's place, on the device."""

from onegraph.kernels.catalogue import kernel


@kernel(per="one", block=32, step="inout i64", first="out i32", rows="i32", batch="i32")
def km_advance(*, step, first, rows, batch):
    """``first = step * batch mod rows``, then ``step += 1``; `rows` is a multiple of `batch`."""
    first[0] = step[0] * batch % rows
    step[0] += 1
