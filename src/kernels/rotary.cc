#include "kernels/rotary.h"

#include <cmath>

#include "base/check.h"
#include "kernels/parallel.h"
#include "kernels/vector/tables.h"

namespace fourfold::kernels {

std::vector<float> rotary_table(std::int64_t positions, std::int64_t head_dim, double theta) {
  FF_CHECK(head_dim > 0 && head_dim % 2 == 0, "rotary over a head of {}", head_dim);
  const std::int64_t half = head_dim / 2;
  std::vector<float> table(static_cast<std::size_t>(positions * head_dim));
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency =
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    for (std::int64_t position = 0; position < positions; ++position) {
      const double angle = static_cast<double>(position) * frequency;
      float* row = table.data() + position * head_dim;
      row[i] = static_cast<float>(std::cos(angle));
      row[half + i] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

template <class T>
void rotary(T* heads_data, std::int64_t rows, std::int64_t row_stride, std::int64_t heads,
            std::int64_t head_dim, std::int64_t seq, std::int64_t first_position,
            const float* table, bool inverse) {
  FF_CHECK(head_dim % 2 == 0 && seq > 0, "head of {}, sequence of {}", head_dim, seq);
  parallel_ranges(rows, heads * head_dim, [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t row = b; row < e; ++row) {
      tables().elementwise.get<T>().rotate_row(heads_data + row * row_stride, heads, head_dim,
                                               table + (first_position + row % seq) * head_dim,
                                               inverse);
    }
  });
}

template void rotary<float>(float*, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                            std::int64_t, std::int64_t, const float*, bool);
template void rotary<BFloat16>(BFloat16*, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                               std::int64_t, std::int64_t, const float*, bool);

}  // namespace fourfold::kernels
