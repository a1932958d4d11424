#pragma once

#include <span>
#include <string>

#include "comm/communicator.h"
#include "optim/optimizer_tensor.h"

namespace fourfold {

struct GradientNorm {
  double norm = 0;              ///< L2 over all parameters of the model, each element once.
  std::int64_t non_finite = 0;  ///< Elements that are NaN or infinite; norm then leaves them out.
  std::string first_bad;        ///< Name of the first tensor that has some, over all ranks.
};

/// The global norm; the same bits on every rank, and for any order, bucketing or cut of the same
/// gradients, since the squares are summed exactly. Collective over `world`; all ranks hold the
/// same tensors (by name, in the same order), some of them with no rows.
GradientNorm global_gradient_norm(std::span<const OptimizerTensor> tensors, Communicator& world);

/// What gradients are multiplied with so that their norm is at most `limit` (0: no limit).
double clip_factor(double norm, double limit);

}  // namespace fourfold
