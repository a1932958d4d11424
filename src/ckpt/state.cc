#include "ckpt/state.h"

#include <fmt/core.h>

#include <charconv>

namespace fourfold {
namespace {

constexpr std::string_view kFolderPrefix = "step-";
constexpr TensorClass kAllClasses[] = {TensorClass::kDense, TensorClass::kExpert,
                                       TensorClass::kRouter, TensorClass::kState};

}  // namespace

std::string_view tensor_class_name(TensorClass cls) {
  switch (cls) {
    case TensorClass::kDense:
      return "dense";
    case TensorClass::kExpert:
      return "expert";
    case TensorClass::kRouter:
      return "router";
    case TensorClass::kState:
      return "state";
  }
  return "?";
}

std::optional<TensorClass> tensor_class_from_name(std::string_view name) {
  for (TensorClass cls : kAllClasses) {
    if (tensor_class_name(cls) == name) return cls;
  }
  return std::nullopt;
}

TensorClass tensor_class(const ParameterSpec& parameter) {
  if (parameter.expert >= 0) return TensorClass::kExpert;
  return parameter.role == ParameterRole::kRouter ? TensorClass::kRouter : TensorClass::kDense;
}

std::string CheckpointId::folder() const {
  return incarnation == 0 ? fmt::format("{}{:08}", kFolderPrefix, step.value)
                          : fmt::format("{}{:08}.{}", kFolderPrefix, step.value, incarnation);
}

std::optional<CheckpointId> CheckpointId::parse(std::string_view folder) {
  if (!folder.starts_with(kFolderPrefix)) return std::nullopt;
  const char* p = folder.data() + kFolderPrefix.size();
  const char* const end = folder.data() + folder.size();
  CheckpointId id;
  p = std::from_chars(p, end, id.step.value).ptr;
  if (p != end && *p == '.') std::from_chars(p + 1, end, id.incarnation);
  // Only the one way of writing it counts: "step-5" or "step-00000005.0" is no checkpoint.
  if (id.step.value < 0 || id.incarnation < 0 || id.folder() != folder) return std::nullopt;
  if (id.incarnation > kMaxIncarnation) return std::nullopt;
  return id;
}

std::optional<std::int64_t> checked_elements(const std::vector<std::int64_t>& shape,
                                             std::int64_t element_size) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 62;
  std::int64_t elements = 1;
  for (const std::int64_t n : shape) {
    if (n < 0 || __builtin_mul_overflow(elements, n, &elements)) return std::nullopt;
  }
  if (elements > kLimit / element_size) return std::nullopt;
  return elements;
}

}  // namespace fourfold
