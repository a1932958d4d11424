#include "ckpt/file_names.h"

#include <fmt/core.h>

#include <charconv>

namespace fourfold {
namespace {

constexpr std::string_view kPrefix = "rank-";

}  // namespace

std::string dense_file_name(int rank) {
  return fmt::format("{}{:05}.dense.safetensors", kPrefix, rank);
}

std::string expert_file_name(int rank) {
  return fmt::format("{}{:05}.expert.safetensors", kPrefix, rank);
}

std::optional<int> rank_of_file(std::string_view name) {
  int rank = -1;
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), rank);
  // Only the one way of writing it counts.
  const bool known = rank >= 0 && (name == dense_file_name(rank) || name == expert_file_name(rank));
  return known ? std::optional<int>(rank) : std::nullopt;
}

bool is_expert_file(std::string_view name) {
  const auto rank = rank_of_file(name);
  return rank && name == expert_file_name(*rank);
}

}  // namespace fourfold
