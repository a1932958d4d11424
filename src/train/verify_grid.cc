#include "train/verify_grid.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/crc32c.h"
#include "device/tensors.h"

namespace fourfold {
namespace {

/// The box `region` of a full tensor, dense.
at::Tensor cut(const at::Tensor& full, const Region& region) {
  at::Tensor part = full;
  for (std::size_t d = 0; d < region.dims.size(); ++d) {
    part = part.narrow(static_cast<std::int64_t>(d), region.dims[d].begin, region.dims[d].size());
  }
  return part.contiguous();
}

/// Tensors of one rank have a column where vectors have none.
at::Tensor cut(const at::Tensor& full, const Parameter& p, const Region& region) {
  return cut(full.view(p.spec.layout.shape), region);
}

bool equal_bits(const at::Tensor& a, const at::Tensor& b) {
  FF_CHECK(a.numel() == b.numel(), "{} and {} elements", a.numel(), b.numel());
  return std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

bool initial_weights_equal(RankModel& model, const VerifyReference& reference,
                           Communicator& world) {
  std::int64_t different = 0;
  for (Parameter* p : model.model().parameters()) {
    const auto& state = reference.steps.front().state;
    const std::string& name = p->spec.name;
    const at::Tensor& master = state.at(name + "@" + kKindMaster);
    const at::Tensor& weight = state.at(name + "@" + kKindWeight);
    if (!equal_bits(p->master, cut(master, *p, p->updated))) ++different;
    if (!equal_bits(p->weight, cut(weight, *p, p->stored))) ++different;
  }
  world.all_reduce({&different, 1, DType::kI64}, ReduceOp::kSum).wait_host();
  return different == 0;
}

void load_state(RankModel& model, const VerifyReference& reference, int step) {
  model.settle();
  const auto& state = reference.steps[step].state;
  for (Parameter* p : model.model().parameters()) {
    auto load = [&](const at::Tensor& target, const char* kind) {
      const at::Tensor part = cut(state.at(p->spec.name + "@" + kind), *p, p->updated);
      at::Tensor(target).copy_(part.view(target.sizes()));
    };
    load(p->updated_weight(), kKindWeight);
    load(p->master, kKindMaster);
    load(p->exp_avg, kKindExpAvg);
    load(p->exp_avg_sq, kKindExpAvgSq);
  }
  model.restored({}, step);
}

/// Compares the gradients that the model holds with one rank's; adds to the result.
void compare_gradients(RankModel& model, const VerifyReference& reference, int step,
                       Communicator& world, VerifyResult& result) {
  const auto& parameters = model.model().parameters();
  std::vector<double> squares(2 * parameters.size(), 0);  // Of the difference, of the reference.
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = *parameters[i];
    if (!p.counted) continue;
    const at::Tensor wanted = cut(reference.steps[step].gradients.at(p.spec.name), p, p.updated);
    const auto* a = elements<float>(p.updated_gradient());
    const auto* b = elements<float>(wanted);
    for (std::int64_t j = 0; j < wanted.numel(); ++j) {
      const double difference = static_cast<double>(a[j]) - b[j];
      squares[2 * i] += difference * difference;
      squares[2 * i + 1] += static_cast<double>(b[j]) * b[j];
    }
  }
  world
      .all_reduce({squares.data(), static_cast<std::int64_t>(squares.size()), DType::kF64},
                  ReduceOp::kSum)
      .wait_host();
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < squares.size(); i += 2) {
    difference += squares[i];
    norm += squares[i + 1];
  }
  const double whole = std::sqrt(norm);
  // A NaN compares as not smaller, so that it cannot hide.
  auto raise = [](double& highest, double value) {
    if (!(value <= highest)) highest = value;
  };
  raise(result.gradient_difference, std::sqrt(difference) / whole);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const double scale = std::max(std::sqrt(squares[2 * i + 1]), 1e-3 * whole);
    const double relative = std::sqrt(squares[2 * i]) / scale;
    if (!(relative <= result.tensor_difference)) {
      result.tensor_difference = relative;
      result.worst_tensor = parameters[i]->spec.name;
    }
  }
}

std::uint32_t gradient_crc(RankModel& model, std::uint32_t crc) {
  for (Parameter* p : model.model().parameters()) {
    const at::Tensor gradient = p->updated_gradient();
    crc = crc32c(gradient.const_data_ptr(), gradient.nbytes(), crc);
  }
  return crc;
}

/// One hash of all ranks' hashes.
std::uint32_t join_hashes(std::uint32_t mine, Communicator& world) {
  std::vector<std::int32_t> all(world.size());
  std::memcpy(&all[world.rank()], &mine, sizeof mine);
  const std::vector<std::int64_t> one_each(world.size(), 1);
  world
      .all_gather({&all[world.rank()], 1, DType::kI32},
                  {all.data(), static_cast<std::int64_t>(all.size()), DType::kI32}, one_each)
      .wait_host();
  return crc32c(all.data(), all.size() * sizeof(std::int32_t));
}

}  // namespace

VerifyTolerance verify_tolerance(Precision precision) {
  return precision == Precision::kFp32 ? VerifyTolerance{} : VerifyTolerance{1e-2, 5e-2, 2e-1};
}

bool VerifyResult::passes(const VerifyTolerance& t) const {
  return initial_weights_equal && loss_difference <= t.loss && gradient_difference <= t.gradient &&
         tensor_difference <= t.tensor;
}

VerifyResult verify_grid(const RunSpec& run, Communicator& world, const VerifyReference& reference,
                         const SampleReader& samples) {
  RankModel model(run, world);
  VerifyResult result;
  result.initial_weights_equal = initial_weights_equal(model, reference, world);
  std::uint32_t hash = 0;
  auto compare_loss = [&](double loss, int step) {
    const double difference = std::abs(loss - reference.losses[step]);
    if (!(difference <= result.loss_difference)) result.loss_difference = difference;
    hash = crc32c(&loss, sizeof loss, hash);
  };
  const int steps = static_cast<int>(reference.steps.size());
  for (int step = 0; step < steps; ++step) {
    compare_loss(model.train_step(step, step * run.train.global_batch, samples).loss, step);
  }
  for (int step = 0; step < steps; ++step) {
    load_state(model, reference, step);
    compare_loss(model.compute_gradients(step, step * run.train.global_batch, samples), step);
    hash = gradient_crc(model, hash);
    compare_gradients(model, reference, step, world, result);
  }
  result.hash = join_hashes(hash, world);
  return result;
}

}  // namespace fourfold
