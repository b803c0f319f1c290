"""Move each centroid towards the points that were assigned to it."""

import numpy as np

from onegraph.kernels.catalogue import kernel


@kernel(
    work="clusters",
    block=64,
    points="in f32",
    first="in i32",
    label="in i32",
    centroids="inout f32",
    count="inout i64",
    batch="i32",
    clusters="i32",
    dims="i32",
)
def km_move(*, points, first, label, centroids, count, batch, clusters, dims):
    """Mini-batch k-means (Sculley 2010): the n-th point of a centroid moves it by 1/n of the way.

    `centroids` [clusters, dims], `count` [clusters]: the points that each has had so far.
    """
    x = points.reshape(-1, dims)[first[0] : first[0] + batch]
    c = centroids.reshape(clusters, dims)
    for i in range(batch):  # in the batch's order, as the kernel's thread of that centroid
        k = label[i]
        count[k] += 1
        c[k] += (x[i] - c[k]) / np.float32(count[k])
