#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "base/exact_sum.h"
#include "comm/communicator.h"
#include "optim/optimizer_tensor.h"

namespace fourfold {

struct GradientNorm {
  double norm = 0;              ///< L2 over all parameters of the model, each element once.
  std::int64_t non_finite = 0;  ///< Elements that are NaN or infinite; norm then leaves them out.
  std::string first_bad;        ///< Name of the first tensor that has some, over all ranks.
};

/// The global norm, added up tensor by tensor as gradients become ready. The same bits on every
/// rank, and for any order, bucketing or cut of the same gradients, since the squares are summed
/// exactly.
class GradientNormSum {
 public:
  /// Adds the elements that this rank counts. `index` is the tensor's place among all of the
  /// model's and the same on every rank.
  void add(const OptimizerTensor& tensor, std::int64_t index);
  /// The norm over all ranks. Collective over `world`; `names` are those of all tensors, by index.
  GradientNorm combine(std::span<const std::string> names, Communicator& world);

 private:
  ExactSum sum_;
  std::int64_t first_bad_ = std::numeric_limits<std::int64_t>::max();
};

/// What gradients are multiplied with so that their norm is at most `limit` (0: no limit).
double clip_factor(double norm, double limit);

}  // namespace fourfold
