#pragma once

#include <ATen/core/TensorBody.h>

#include <vector>

#include "parallel/context.h"

namespace fourfold {

// Between plain data-parallel activations, where each rank has rows of its own with all features,
// and those of a 4D layer: the rows of all ranks of one (z, data), the features cut over an axis
// and repeated on the other. AxoNN calls it the easy mode. The two are each other's dual: the
// gradient of one is the other of the gradient.

/// Rows that each rank of this (z, data) has, in the order of their ranks over x and y. Collective
/// over x and y.
std::vector<std::int64_t> rows_of_ranks(const ParallelContext& context, std::int64_t mine);

/// mine [rows of this rank, width] → [all their rows, this rank's part of width over `features`].
at::Tensor to_grid(const ParallelContext& context, const at::Tensor& mine,
                   const std::vector<std::int64_t>& rows, Axis features);

/// part [all rows, this rank's part of `width` over `features`] → [rows of this rank, width].
at::Tensor from_grid(const ParallelContext& context, const at::Tensor& part,
                     const std::vector<std::int64_t>& rows, Axis features, std::int64_t width);

}  // namespace fourfold
