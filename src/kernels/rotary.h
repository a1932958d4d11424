#pragma once

#include <cstdint>
#include <vector>

#include "base/bfloat16.h"

/// Rotary position embedding (Su et al. 2021), half-split as Llama and Hugging Face have it: pairs
/// (i, i + head_dim / 2).
namespace fourfold::kernels {

/// [positions, head_dim]: in each row head_dim / 2 cosines, then as many sines, of
/// position·theta^(-2i / head_dim).
std::vector<float> rotary_table(std::int64_t positions, std::int64_t head_dim, double theta);

/// Turns `heads` adjacent heads at the start of each row in place; in a fused [q|k|v] row q and k
/// are heads + kv_heads adjacent heads. Row r is at position first_position + r mod seq, which the
/// table must reach. `row_stride` is in elements; head_dim is even. `inverse` turns back: the
/// gradient.
template <class T>
void rotary(T* heads_data, std::int64_t rows, std::int64_t row_stride, std::int64_t heads,
            std::int64_t head_dim, std::int64_t seq, std::int64_t first_position,
            const float* table, bool inverse);

}  // namespace fourfold::kernels
