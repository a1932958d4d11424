#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/state.h"
#include "layout/region.h"
#include "tests/crash/state_fixture.h"

namespace fourfold {

constexpr int kGoldenRanks = 2;  ///< That wrote the golden checkpoints.
constexpr int kGoldenBase = 100, kGoldenStep = 200;

/// The state of tests/golden/checkpoint-v1, or v2, as one of any number of ranks holds it. It never
/// changes, nor do the bits that test_bits gives it: later programs must find them in the files.
///
/// v2 has three experts, which rotate: it is of step 200, but the experts 0 and 2 are of step 100.
class GoldenState {
 public:
  GoldenState(int rank, int ranks, int format) : rank_(rank), ranks_(ranks), format_(format) {
    // Five rows, seven columns: no number of ranks cuts both evenly.
    const Region rows{{split_range(5, ranks, rank), {0, 3}}};
    const Region columns{{{0, 4}, split_range(7, ranks, rank)}};
    add("embed.weight", kKindWeight, DType::kBF16, TensorClass::kDense, {5, 3}, rows, 1);
    for (const char* kind : {kKindMaster, kKindExpAvg, kKindExpAvgSq}) {
      add("embed.weight", kind, DType::kF32, TensorClass::kDense, {5, 3}, rows, 1);
      add("head.weight", kind, DType::kF32, TensorClass::kDense, {4, 7}, columns, 1);
      add("layers.0.norm.weight", kind, DType::kF32, TensorClass::kDense, {3}, {{{0, 3}}}, ranks);
      add("layers.0.router.weight", kind, DType::kF32, TensorClass::kRouter, {2, 2},
          {{{0, 2}, {0, 2}}}, ranks);
    }
    add("tokens", "counter", DType::kI64, TensorClass::kState, {}, {}, ranks);
    for (int expert = 0; format == 2 && expert < 3; ++expert) {
      const std::string name = "layers.0.experts." + std::to_string(expert) + ".weight";
      const Region region{{{0, expert % ranks == rank ? 3 : 0}, {0, 2}}};
      for (const char* kind : {kKindMaster, kKindExpAvg}) {
        add(name, kind, DType::kF32, TensorClass::kExpert, {3, 2}, region, 1);
        tensors_.back().rotates = true;
      }
    }
  }

  std::vector<StateTensor>& tensors() { return tensors_; }

  void fill(int version) {
    const auto same = [&](const StateTensor&) { return version; };
    each_element(same, [](const StateTensor&, std::uint64_t bits, char* at, std::size_t size) {
      std::memcpy(at, &bits, size);
    });
  }

  /// The first tensor that does not hold its bits; empty if there is none.
  std::string difference() {
    std::string found;
    const auto version = [&](const StateTensor& t) {
      if (format_ == 1) return 1;
      return t.rotates && !is_taken(t) ? kGoldenBase : kGoldenStep;
    };
    each_element(version,
                 [&](const StateTensor& t, std::uint64_t bits, char* at, std::size_t size) {
                   if (found.empty() && std::memcmp(at, &bits, size) != 0)
                     found = t.key() + t.region.name();
                 });
    return found;
  }

  /// What the checkpoint of step 200 writes of what rotates.
  static bool is_taken(const StateTensor& t) { return t.name == "layers.0.experts.1.weight"; }

 private:
  void add(const std::string& name, const char* kind, DType dtype, TensorClass cls,
           std::vector<std::int64_t> shape, Region region, int replicas) {
    StateTensor t{name, kind, dtype, cls, std::move(shape), std::move(region)};
    t.replicas = replicas;
    t.replica = replicas > 1 ? rank_ : 0;
    t.replica_set = replicas > 1 ? 1 : 0;
    const auto bytes = static_cast<std::size_t>(t.region.elements() * dtype_size(dtype));
    storage_.push_back(std::make_unique<std::vector<char>>(bytes, char{0x55}));
    t.data = storage_.back()->data();
    tensors_.push_back(std::move(t));
  }

  /// Calls visit(tensor, the element's bits in its version, where it lies, its size).
  template <class Version, class Visit>
  void each_element(Version version, Visit visit) {
    for (const StateTensor& t : tensors_) {
      const std::uint64_t stream = test_stream(t.key(), version(t));
      const std::int64_t width = t.shape.size() < 2 ? 1 : t.region.dims[1].size();
      for (std::int64_t i = 0; i < t.region.elements(); ++i) {
        std::int64_t index = t.shape.empty() ? 0 : t.region.dims[0].begin + i / width;
        if (t.shape.size() == 2) index = index * t.shape[1] + t.region.dims[1].begin + i % width;
        const std::int64_t size = dtype_size(t.dtype);
        visit(t, test_bits(stream, index), static_cast<char*>(t.data) + i * size,
              static_cast<std::size_t>(size));
      }
    }
  }

  int rank_, ranks_, format_;
  std::vector<StateTensor> tensors_;
  std::vector<std::unique_ptr<std::vector<char>>> storage_;
};

inline CheckpointMeta golden_meta() {
  CheckpointMeta meta;
  meta.step = Step(kGoldenStep);
  meta.run_id = "golden";
  meta.model = "golden, 50 parameters";
  meta.model_hash = "0123456789abcdef";
  meta.grid = GridShape(kGoldenRanks, 1, 1, 1);
  meta.order = "xyzd";
  meta.zero = 1;
  meta.seed = 0xfedcba9876543210u;
  meta.next_sample = 6400;
  meta.intra_op_threads = 3;
  meta.scalars = {{"lr", "6e-4"}, {"updates", "200"}};
  meta.config_toml = "[run]\nseed = 1234\n";
  return meta;
}

}  // namespace fourfold
