#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "comm/thread_world.h"
#include "device/intra_op_threads.h"
#include "device/tensors.h"
#include "parallel/gradient_sync.h"
#include "parallel/parameter.h"

// What tests of 4D layers against LibTorch share: whole tensors cut for the ranks and put together
// again, and the oracle's weights.
namespace fourfold::testing {

inline constexpr int kBackwards = 2;  // Gradients of micro-batches are added up.

inline const std::vector<GridShape>& grids() {
  static const std::vector<GridShape> kGrids{{1, 1, 1, 1}, {3, 2, 1, 1}, {1, 3, 2, 1},
                                             {2, 2, 2, 1}, {1, 2, 1, 3}, {2, 1, 3, 1}};
  return kGrids;
}

/// A whole tensor put together from what the ranks hold. Ranks that hold the same elements must
/// hold the same bits.
class Collected {
 public:
  explicit Collected(std::vector<std::int64_t> shape)
      : box_(Region::whole(shape)), whole_(torch::zeros(shape)), times_(torch::zeros(shape)) {}

  void add(const Region& region, const at::Tensor& held) {
    const at::Tensor part = held.reshape(region.shape()).contiguous();
    const std::lock_guard lock(mutex_);
    if (region.empty()) return;
    at::Tensor known = torch::empty_like(part), times = torch::empty_like(part);
    copy_region(region, box_, whole_.data_ptr(), region, known.data_ptr(), sizeof(float));
    copy_region(region, box_, times_.data_ptr(), region, times.data_ptr(), sizeof(float));
    EXPECT_TRUE(torch::where(times > 0, known == part, times == 0).all().item<bool>())
        << "replicas of " << region.name() << " differ";
    times += 1;
    copy_region(region, region, part.data_ptr(), box_, whole_.data_ptr(), sizeof(float));
    copy_region(region, region, times.data_ptr(), box_, times_.data_ptr(), sizeof(float));
  }

  void expect_near(const at::Tensor& expected, const std::string& what,
                   double tolerance = 1e-5) const {
    EXPECT_TRUE((times_ > 0).all().item<bool>()) << what << ": some elements are with nobody";
    const double off = (whole_ - expected).abs().max().item<double>();
    const double size = expected.abs().max().item<double>();
    EXPECT_GT(size, 0) << what;
    EXPECT_LT(off, tolerance * std::max(size, 1.0)) << what;
  }

 private:
  std::mutex mutex_;
  Region box_;
  at::Tensor whole_, times_;
};

/// The part of a whole tensor that lies in a region, dense.
inline at::Tensor cut(const at::Tensor& whole, const Region& region) {
  at::Tensor part = whole;
  for (std::size_t d = 0; d < region.dims.size(); ++d) {
    part = part.narrow(static_cast<std::int64_t>(d), region.dims[d].begin, region.dims[d].size());
  }
  return part.contiguous();
}

/// The range of [0, size) that the rank has of a dim cut over `axes`.
inline Range share(const ParallelContext& context, std::int64_t size, AxisSet axes) {
  const Grid& grid = context.grid.grid();
  return split_range(size, grid.group_size(axes), grid.group_rank(context.coords(), axes));
}

/// Rows belong to (z, data).
inline Range rows_of_rank(const ParallelContext& context, std::int64_t rows) {
  return share(context, rows, {Axis::kZ, Axis::kData});
}

/// Of these, the rank's rows of a residual stream that is cut over x, or all.
inline Range stream_rows(const ParallelContext& context, Range rows, bool is_cut) {
  if (!is_cut) return rows;
  const Range own = split_range(rows.size(), context.size(Axis::kX), context.coords().x);
  return {rows.begin + own.begin, rows.begin + own.end};
}

inline void on_ranks(const GridShape& shape,
                     const std::function<void(const ParallelContext&)>& body) {
  SCOPED_TRACE("grid " + shape.name());
  run_thread_ranks(shape.size(), {}, [&](Communicator& world) {
    set_intra_op_threads(1);
    const c10::InferenceMode no_autograd;
    ProcessGrid grid(Grid(shape), world);
    body(ParallelContext{grid, DType::kF32, true, 7});
  });
}

/// The oracle's leaves by the parameters' names; gradients come back by the same names.
class Weights {
 public:
  at::Tensor add(const std::string& name, std::vector<std::int64_t> shape) {
    at::Tensor leaf = torch::randn(shape).mul_(0.5).requires_grad_();
    leaves_[name] = leaf;
    gradients_.try_emplace(name, shape);
    return leaf;
  }
  /// Gives a rank its part of the values.
  void load(ParameterGroup& group) {
    for (Parameter& p : group.parameters()) {
      p.weight.copy_(cut(value(p.spec.name), p.stored).view(p.weight.sizes()));
    }
  }
  /// Sums a rank's gradients over data and takes them.
  void collect(const ParallelContext& context, ParameterGroup& group) {
    std::vector<Parameter*> all;
    for (Parameter& p : group.parameters()) all.push_back(&p);
    OverlapScheduler plain({});
    GradientSync sync(context, plain);
    sync.start(all, Lane::kCaller);
    sync.finish();
    for (Parameter& p : group.parameters()) {
      gradients_.at(p.spec.name).add(p.updated, p.updated_gradient());
    }
  }
  void expect_gradients(double tolerance = 1e-5) const {
    for (const auto& [name, gradient] : gradients_) {
      gradient.expect_near(leaves_.at(name).grad() * kBackwards, "gradient of " + name, tolerance);
    }
  }
  at::Tensor value(const std::string& name) const { return leaves_.at(name).detach(); }

 private:
  std::map<std::string, at::Tensor> leaves_;
  std::map<std::string, Collected> gradients_;
};

inline std::vector<std::int64_t> shape_of(const at::Tensor& tensor) { return tensor.sizes().vec(); }

}  // namespace fourfold::testing
