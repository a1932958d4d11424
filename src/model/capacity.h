#pragma once

#include <cstdint>
#include <span>

#include "spec/moe_spec.h"

namespace fourfold {

/// Assignments that an expert takes of `tokens` tokens: ceil(capacity_factor·tokens·top_k/experts).
std::int64_t expert_capacity(const MoeSpec& spec, std::int64_t tokens);

/// Sets to -1 the assignments (experts, in the order of tokens) that find their expert full after
/// `most` others, those that came `before` included; adds the others to `before`.
void drop_last(std::span<std::int32_t> experts, std::span<std::int64_t> before, std::int64_t most);

/// Sets to -1 all but the `most` assignments of greatest weight of each expert; of equal ones the
/// first stay.
void drop_lowest(std::span<std::int32_t> experts, const float* weights, std::int64_t expert_count,
                 std::int64_t most);

}  // namespace fourfold
