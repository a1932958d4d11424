#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/strong_int.h"
#include "layout/grid.h"
#include "layout/parameter_spec.h"
#include "layout/region.h"
#include "layout/tensor_layout.h"

namespace fourfold {

/// How a tensor is kept: experts may be stored in rotation, the others always whole.
enum class TensorClass : std::uint8_t { kDense, kExpert, kRouter, kState };

/// "dense", "expert", "router", "state".
std::string_view tensor_class_name(TensorClass cls);
std::optional<TensorClass> tensor_class_from_name(std::string_view name);

/// That of a parameter's tensors.
TensorClass tensor_class(const ParameterSpec& parameter);

/// The kinds that a parameter has. fp32 runs store master and the moments, bf16 runs weight too.
inline constexpr const char* kKindWeight = "weight";
inline constexpr const char* kKindMaster = "master";
inline constexpr const char* kKindExpAvg = "exp_avg";
inline constexpr const char* kKindExpAvgSq = "exp_avg_sq";

/// One tensor of the state as one rank holds it. Every rank lists the same tensors (name, kind,
/// dtype, class, shape) in the same order; only `region` and what follows differs between ranks.
/// The ranks' regions together hold every element, and two of them are equal or do not meet.
struct StateTensor {
  std::string name;  ///< Global, unfused, as Hugging Face names it; without '@' and '['.
  std::string kind;  ///< kKind…, or another word of the caller's.
  DType dtype = DType::kF32;
  TensorClass cls = TensorClass::kDense;
  std::vector<std::int64_t> shape;  ///< Global.
  Region region;                    ///< What this rank holds; may be empty.
  void* data = nullptr;             ///< The region, dense and row-major; null only where empty.
  int replica = 0;                  ///< Which of the ranks that hold this region this one is.
  int replicas = 1;                 ///< How many ranks hold it.
  /// Two tensors of one rank have the same number only if their replicas are the same ranks in the
  /// same order (for instance the bits of the axes they stand along): small tensors of one set are
  /// then spread evenly. Below 0: unknown, they are spread by a hash of their names.
  int replica_set = -1;
  /// How the tensor is split over a grid; lives as long as this. A load then opens the files of
  /// ranks that held what it wants first, and the others only for what those do not have; without
  /// it, it looks through all of them.
  const TensorLayout* layout = nullptr;
  /// Saving: it is stored in rank-….expert.safetensors, and a save may leave it to an older
  /// checkpoint. Only experts do; the same on every rank.
  bool rotates = false;
  /// Loading: a checkpoint without this tensor is no error, `loaded` says whether it was there (for
  /// a weight that can be had from its master).
  bool optional = false;
  bool loaded = false;

  /// "name@kind".
  std::string key() const { return name + "@" + kind; }
};

/// All that is saved beside tensors.
struct CheckpointMeta {
  Step step;
  std::string run_id;
  std::string session;     ///< Which start of the run wrote it; drawn anew by each.
  std::string model;       ///< For people: "gpt2-124m, 124,439,808 parameters".
  std::string model_hash;  ///< Of all that makes two models differ.
  GridShape grid;
  std::string order = "yxzd";
  int zero = 0;
  std::uint64_t seed = 0;
  std::int64_t next_sample = 0;  ///< Global index of the first sample that has not been trained on.
  int intra_op_threads = 0;
  std::map<std::string, std::string> scalars;  ///< What else the caller wants back.
  std::string config_toml;                     ///< The resolved configuration.
};

/// A checkpoint's identity. The incarnation tells apart two that were saved at the same step: it is
/// counted up whenever a run goes back to before a checkpoint of it. The folder is step-00000200,
/// or step-00000200.1 of the second.
struct CheckpointId {
  static constexpr int kMaxIncarnation = 1'000'000;  ///< Far above what returns count up to.
  Step step;
  int incarnation = 0;
  auto operator<=>(const CheckpointId&) const = default;
  std::string folder() const;
  /// Reads folder(); none where it is not one, or beyond kMaxIncarnation.
  static std::optional<CheckpointId> parse(std::string_view folder);
};

/// Product of the sizes; none where one is negative or the bytes would pass 2^62: shapes that come
/// from a file go through here before anything is made of them.
std::optional<std::int64_t> checked_elements(const std::vector<std::int64_t>& shape,
                                             std::int64_t element_size);

}  // namespace fourfold
