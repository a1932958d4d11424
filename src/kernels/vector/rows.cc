#include "kernels/rows.h"

#include "kernels/vector/tables.h"
#include "kernels/vector/vec.h"

namespace fourfold::kernels::CPU_CAPABILITY {
namespace {

template <class T>
void sum_rows(const T* rows, std::int64_t cols, const std::int32_t* index, std::int64_t out_rows,
              int per_row, T* out) {
  for (std::int64_t row = 0; row < out_rows; ++row) {
    const std::int32_t* summands = index + row * per_row;
    // The sum stays in a register: bf16 is rounded once, and what is read is read once.
    for_lanes(cols, [&](std::int64_t i, auto count) {
      F total{};
      for (int j = 0; j < per_row; ++j) {
        if (summands[j] >= 0) total = total + load(rows + summands[j] * cols + i, count);
      }
      store(out + row * cols + i, total, count);
    });
  }
}

}  // namespace

void fill(ForBoth<RowsTable>& tables) { tables = {{sum_rows<float>}, {sum_rows<BFloat16>}}; }

}  // namespace fourfold::kernels::CPU_CAPABILITY
