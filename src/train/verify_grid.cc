#include "train/verify_grid.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/crc32c.h"
#include "device/tensors.h"
#include "train/other_choices.h"

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
  model.routers().set_memory(reference.steps[step].memory);
  model.restored({}, step);
}

// A NaN compares as not smaller, so that it cannot hide.
void raise(double& highest, double value) {
  if (!(value <= highest)) highest = value;
}

void compare_tally(RankModel& model, const VerifyReference& reference, int step,
                   VerifyResult& result) {
  const auto& here = model.routers().tally();
  const auto& wanted = reference.steps[step].tally;
  for (std::size_t block = 0; block < here.size(); ++block) {
    for (std::size_t e = 0; e < here[block].tokens.size(); ++e) {
      raise(result.counts_difference, std::abs(here[block].tokens[e] - wanted[block].tokens[e]));
    }
    raise(result.counts_difference, std::abs(here[block].dropped - wanted[block].dropped));
  }
  const std::int64_t tokens = model.run().train.global_batch * model.run().train.seq_len;
  const auto& at = reference.steps[step];
  raise(result.aux_difference, std::abs(model.routers().aux_loss(tokens) - at.aux_loss));
  raise(result.aux_difference, std::abs(model.routers().z_loss(tokens) - at.z_loss));
}

/// Compares the gradients that the model holds with one rank's; adds to the result.
void compare_gradients(RankModel& model, const VerifyReference& reference, int step,
                       Communicator& world, VerifyResult& result) {
  const std::vector<ParameterSpec>& specs = model.specs();
  std::vector<double> squares(2 * specs.size(), 0);  // Of the difference, of the reference.
  for (const Parameter* held : model.model().parameters()) {
    const Parameter& p = *held;
    const std::size_t i = model.index_of(p);
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
  raise(result.gradient_difference, std::sqrt(difference) / whole);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const double scale = std::max(std::sqrt(squares[2 * i + 1]), 1e-3 * whole);
    const double relative = std::sqrt(squares[2 * i]) / scale;
    if (!(relative <= result.tensor_difference)) {
      result.tensor_difference = relative;
      result.worst_tensor = specs[i].name;
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
  switch (precision) {
    case Precision::kFp32:
      return {};
    case Precision::kFp32x3:
      return {1e-5, 1e-4, 1e-3, 1e-3};
    case Precision::kBf16:
      return {1e-2, 5e-2, 2e-1, 1e-2};
  }
  FF_CHECK(false, "a precision without tolerances");
}

std::string VerifyResult::failure(const VerifyTolerance& t) const {
  const bool near = std::all_of(other_choices.begin(), other_choices.end(),
                                [&](const OtherChoice& c) { return c.margin < t.near_tie; });
  // A NaN is within nothing.
  if (!initial_weights_equal) return "the initial weights";
  if (!(tensor_difference <= t.tensor)) return worst_tensor;
  if (!(gradient_difference <= t.gradient)) return "the gradient";
  if (!(loss_difference <= t.loss)) return "the loss";
  if (!(counts_difference == 0)) return "the counts of experts";
  if (!(aux_difference <= t.loss)) return "the routers' losses";
  if (!(free_difference <= t.loss)) return "the loss of a free step";
  return near ? "" : "a choice of experts that is no near tie";
}

VerifyResult verify_grid(const RunSpec& run, Communicator& world, const VerifyReference& reference,
                         const SampleReader& samples) {
  RankModel model(run, world);
  VerifyResult result;
  result.initial_weights_equal = initial_weights_equal(model, reference, world);
  std::uint32_t hash = 0;
  auto compare_loss = [&](double loss, int step) {
    raise(result.loss_difference, std::abs(loss - reference.losses[step]));
    hash = crc32c(&loss, sizeof loss, hash);
  };
  const int steps = static_cast<int>(reference.steps.size());
  for (int step = 0; step < steps; ++step) {
    model.routers().impose(&reference.steps[step].routing, nullptr);
    compare_loss(model.train_step(step, step * run.train.global_batch, samples).loss, step);
  }
  for (int step = 0; step < steps; ++step) {
    const VerifyReference::StepState& at = reference.steps[step];
    RoutingTable own;
    model.routers().impose(&at.routing, &own);
    load_state(model, reference, step);
    compare_loss(model.compute_gradients(step, step * run.train.global_batch, samples), step);
    hash = gradient_crc(model, hash);
    compare_gradients(model, reference, step, world, result);
    compare_tally(model, reference, step, result);
    if (run.model.moe.experts == 0) continue;
    const auto others = find_other_choices(own, at.routing, run.model.moe.top_k, step, world);
    result.other_choices.insert(result.other_choices.end(), others.begin(), others.end());
    if (!others.empty()) continue;
    model.routers().impose(nullptr, nullptr);
    const double loss = model.compute_gradients(step, step * run.train.global_batch, samples);
    raise(result.free_difference, std::abs(loss - reference.losses[step]));
    compare_tally(model, reference, step, result);
  }
  result.hash = join_hashes(hash, world);
  return result;
}

}  // namespace fourfold
