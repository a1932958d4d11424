#include "kernels/exact_sum.h"

#include <vector>

#include "kernels/parallel.h"
#include "kernels/vector/tables.h"

namespace fourfold::kernels {
namespace {

// Exact sums merge in any order to the same bits.
template <class T, class Add>
void add_in_parts(const T* x, std::int64_t n, ExactSum& sum, Add add) {
  const std::int64_t parts = part_count(n, 2);
  std::vector<ExactSum> sums(static_cast<std::size_t>(parts));
  for_parts(parts, n, [&](std::int64_t part, std::int64_t b, std::int64_t e) {
    add(x + b, e - b, sums[part]);
  });
  for (const ExactSum& part : sums) sum.merge(part);
  sum.normalise();
}

}  // namespace

template <class T>
void add_squares(const T* x, std::int64_t n, ExactSum& sum) {
  add_in_parts(x, n, sum, tables().exact_sum.get<T>().add_squares);
}

template <class T>
void add_values(const T* x, std::int64_t n, ExactSum& sum) {
  add_in_parts(x, n, sum, tables().exact_sum.get<T>().add_values);
}

template void add_squares<float>(const float*, std::int64_t, ExactSum&);
template void add_squares<BFloat16>(const BFloat16*, std::int64_t, ExactSum&);
template void add_values<float>(const float*, std::int64_t, ExactSum&);
template void add_values<BFloat16>(const BFloat16*, std::int64_t, ExactSum&);

}  // namespace fourfold::kernels
