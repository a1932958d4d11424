#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "base/crc32c.h"
#include "ckpt/state.h"
#include "layout/tensor_layout.h"
#include "policy/held_region.h"

namespace fourfold {

/// A parameter of the state that checkpoint tests save.
struct TestParameter {
  std::string name;
  TensorLayout layout;
  TensorClass cls = TensorClass::kDense;
};

/// Shapes that divide by nothing, each kind of split, one tensor large enough to be cut among its
/// replicas, one that has more ranks than rows, and one whose parts neighbouring ranks share.
inline std::vector<TestParameter> test_parameters(const GridShape& grid) {
  const DimSplit shared{{Axis::kX}, grid.x % 2 == 0 ? grid.x / 2 : 1};
  const DimSplit x{{Axis::kX}, 0}, y{{Axis::kY}, 0}, whole{{}, 0}, xy{{Axis::kX, Axis::kY}, 0};
  return {
      {"embed.weight", {{11, 6}, {x, y}}},
      {"layers.0.q.weight", {{7, 5}, {x, y}}},
      {"layers.0.k.weight", {{6, 5}, {shared, y}}},
      {"layers.0.o.weight", {{5, 7}, {y, x}}},
      {"layers.0.q.bias", {{7}, {x}}},
      {"layers.0.norm.weight", {{5}, {y}}},
      {"layers.0.shared.weight", {{3}, {whole}}},
      {"layers.0.router.weight", {{4, 5}, {whole, y}}, TensorClass::kRouter},
      {"head.weight", {{13, 6}, {xy, whole}}},
      {"large.weight", {{301, 67}, {whole, whole}}},
      {"large.cut.weight", {{203, 97}, {x, whole}}},
      {"cube", {{3, 4, 5}, {x, whole, y}}},
  };
}

/// What test_bits tells tensors apart by.
inline std::uint64_t test_stream(const std::string& key, int version) {
  return static_cast<std::uint64_t>(crc32c(key.data(), key.size())) << 32 |
         static_cast<std::uint32_t>(version);
}

/// The element of a tensor at a flat global index: any bits, the same on every grid (SplitMix64,
/// cheap enough for sanitizers).
inline std::uint64_t test_bits(std::uint64_t stream, std::int64_t index) {
  std::uint64_t z = stream + static_cast<std::uint64_t>(index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/// The state of one rank of a grid: bf16 weights, fp32 masters and moments, a counter.
class TestState {
 public:
  /// Without the large tensors it is a few KB: for tests that save thousands of times.
  TestState(GridShape shape, int rank, bool zero, bool large = true)
      : grid_(shape), rank_(rank), zero_(zero) {
    const Coords at = grid_.coords(WorldRank(rank));
    for (const TestParameter& p : test_parameters(shape)) {
      if (!large && p.name.starts_with("large")) continue;
      const int replicas = p.layout.replicas(grid_), replica = p.layout.replica(grid_, at);
      for (const char* kind : {kKindWeight, kKindMaster, kKindExpAvg, kKindExpAvgSq}) {
        const bool weight = kind == std::string(kKindWeight), cut = zero && !weight;
        StateTensor t;
        t.name = p.name;
        t.kind = kind;
        t.dtype = weight ? DType::kBF16 : DType::kF32;
        t.cls = p.cls;
        t.shape = p.layout.shape;
        t.region = p.layout.updated(grid_, at, cut);
        t.replicas = cut ? replicas : replicas * shape.data;
        t.replica = cut ? replica : replica * shape.data + at.data;
        t.replica_set = p.layout.split_axes().bits() + (cut ? 16 : 0);
        // Weights are not cut over data here, as the layout would have it with ZeRO: a load must
        // find what the plan misses.
        layouts_.push_back(std::make_unique<TensorLayout>(p.layout));
        t.layout = layouts_.back().get();
        add(std::move(t));
      }
    }
    StateTensor counter;  // A scalar: no dims, held by everybody.
    counter.name = "tokens";
    counter.kind = "counter";
    counter.dtype = DType::kI64;
    counter.cls = TensorClass::kState;
    counter.replica = rank;
    counter.replicas = grid_.size();
    add(std::move(counter));
  }

  /// Adds experts, as many to each rank of z·data as to the next: tensors that rotate, two an
  /// expert.
  void add_experts(int count) {
    const int expert_ranks = grid_.shape().z * grid_.shape().data;
    for (int expert = 0; expert < count; ++expert) {
      layouts_.push_back(
          std::make_unique<TensorLayout>(TensorLayout{{7, 5}, {{{Axis::kX}, 0}, {{Axis::kY}, 0}}}));
      layouts_.back()->expert_ranks = expert_ranks;
      layouts_.back()->expert_rank = expert % expert_ranks;
      for (const char* kind : {kKindMaster, kKindExpAvg}) {
        const HeldRegion held =
            held_region(*layouts_.back(), grid_, grid_.coords(WorldRank(rank_)), zero_);
        StateTensor t;
        t.name = "experts." + std::to_string(expert);
        t.kind = kind;
        t.cls = TensorClass::kExpert;
        t.shape = layouts_.back()->shape;
        t.region = held.region;
        t.replica = held.replica;
        t.replicas = held.replicas;
        t.replica_set = held.replica_set;
        t.layout = layouts_.back().get();
        t.rotates = true;
        add(std::move(t));
      }
    }
  }

  std::vector<StateTensor>& tensors() { return tensors_; }

  void fill(int version) {
    const auto same = [&](const StateTensor&) { return version; };
    each_element(same, [&](const StateTensor& t, std::int64_t, std::uint64_t bits, char* at) {
      std::memcpy(at, &bits, static_cast<std::size_t>(dtype_size(t.dtype)));
    });
  }
  void clear() {
    for (auto& bytes : storage_) std::fill(bytes->begin(), bytes->end(), char{0x55});
  }
  /// The first element that is not that version's, for a message; empty if none.
  std::string difference(int version) {
    return difference([&](const StateTensor&) { return version; });
  }
  /// The same where each tensor has a version of its own: version(tensor).
  template <class Version>
    requires std::is_invocable_r_v<int, Version, const StateTensor&>
  std::string difference(Version version) {
    std::string found;
    each_element(version, [&](const StateTensor& t, std::int64_t index, std::uint64_t bits,
                              char* at) {
      if (found.empty() && std::memcmp(at, &bits, static_cast<std::size_t>(dtype_size(t.dtype)))) {
        found = t.key() + " at " + std::to_string(index);
      }
    });
    return found;
  }

 private:
  void add(StateTensor t) {
    const auto bytes = static_cast<std::size_t>(t.region.elements() * dtype_size(t.dtype));
    storage_.push_back(std::make_unique<std::vector<char>>(bytes));
    t.data = storage_.back()->data();
    tensors_.push_back(std::move(t));
  }

  /// Calls visit(tensor, flat global index, what its version has there, where it lies).
  template <class Version, class Visit>
  void each_element(Version version, Visit visit) {
    for (const StateTensor& t : tensors_) {
      const std::uint64_t stream = test_stream(t.key(), version(t));
      const auto local = t.region.shape();
      for (std::int64_t i = 0, n = t.region.elements(); i < n; ++i) {
        std::int64_t rest = i, index = 0, stride = 1;
        for (std::size_t d = local.size(); d > 0; --d) {
          index += stride * (t.region.dims[d - 1].begin + rest % local[d - 1]);
          rest /= local[d - 1];
          stride *= t.shape[d - 1];
        }
        visit(t, index, test_bits(stream, index),
              static_cast<char*>(t.data) + i * dtype_size(t.dtype));
      }
    }
  }

  Grid grid_;
  int rank_;
  bool zero_;
  std::vector<StateTensor> tensors_;
  std::vector<std::unique_ptr<std::vector<char>>> storage_;
  std::vector<std::unique_ptr<TensorLayout>> layouts_;
};

inline CheckpointMeta test_meta(std::int64_t step, GridShape grid = {}, int zero = 0) {
  CheckpointMeta meta;
  meta.step = Step(step);
  meta.run_id = "run-1";
  meta.model = "test model";
  meta.model_hash = "abc";
  meta.grid = grid;
  meta.zero = zero;
  meta.seed = 0xfedcba9876543210u;
  meta.next_sample = step * 32;
  meta.intra_op_threads = 2;
  meta.scalars = {{"lr", "6e-4"}, {"tokens", "12"}};
  meta.config_toml = "[run]\nseed = 1234\n";
  return meta;
}

}  // namespace fourfold
