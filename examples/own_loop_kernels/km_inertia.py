"""The batch's inertia: what k-means lowers."""

import numpy as np

from onegraph.kernels.catalogue import kernel


@kernel(per="one", block=32, distance="in f32", inertia="inout f64", batch="i32")
def km_inertia(*, distance, inertia, batch):
    """Add the batch's squared distances to ``inertia[0]``, in float64 and in order."""
    for squared in distance[:batch]:
        inertia[0] += np.float64(squared)
