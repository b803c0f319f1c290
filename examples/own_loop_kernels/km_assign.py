"""The nearest centroid of each point of a batch."""

import numpy as np

from onegraph.kernels.catalogue import kernel


@kernel(
    work="batch",
    points="in f32",
    centroids="in f32",
    first="in i32",
    label="out i32",
    distance="out f32",
    batch="i32",
    clusters="i32",
    dims="i32",
)
def km_assign(*, points, centroids, first, label, distance, batch, clusters, dims):
    """`points` [N, dims], `centroids` [clusters, dims], `label` and `distance` [batch].

    The batch begins at row ``first[0]``. Of two centroids equally near, the lower index wins.
    """
    x = points.reshape(-1, dims)[first[0] : first[0] + batch]  # [batch, dims]
    c = centroids.reshape(clusters, dims)
    squared = np.zeros((batch, clusters), np.float32)
    for d in range(dims):  # in this order, as the kernel adds them
        squared += np.square(x[:, d, None] - c[None, :, d])
    label[:batch] = squared.argmin(axis=1)
    distance[:batch] = squared.min(axis=1)
