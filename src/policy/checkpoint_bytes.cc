#include "policy/checkpoint_bytes.h"

#include "base/dtype.h"
#include "spec/counts.h"

namespace fourfold {
namespace {

CheckpointBytes bytes_of(std::int64_t parameters, Precision precision) {
  const std::int64_t full = parameters * dtype_size(DType::kF32);
  CheckpointBytes bytes;
  if (precision == Precision::kBf16) bytes.weight = parameters * dtype_size(DType::kBF16);
  bytes.master = bytes.exp_avg = bytes.exp_avg_sq = full;
  return bytes;
}

}  // namespace

CheckpointBytes checkpoint_bytes(const ModelSpec& model, Precision precision) {
  return bytes_of(count_parameters(model).total(), precision);
}

CheckpointBytes expert_bytes(const ModelSpec& model, Precision precision) {
  return bytes_of(count_parameters(model).experts, precision);
}

}  // namespace fourfold
