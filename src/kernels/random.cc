#include "kernels/random.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/parallel.h"
#include "kernels/vector/tables.h"

namespace fourfold::kernels {
namespace {

constexpr std::int64_t kPiece = 4096;  // Elements of a run that one task makes.

// A box as runs that are contiguous in the global tensor.
struct Runs {
  std::int64_t count = 1, length = 1;
  std::size_t dims = 0;  // Leading dims that are walked; those after them make up a run.
};

Runs runs_of(std::span<const BoxDim> box) {
  Runs runs;
  std::size_t d = box.size();
  while (d > 0) {
    --d;
    runs.length *= box[d].end - box[d].begin;
    if (box[d].begin != 0 || box[d].end != box[d].size) break;
  }
  runs.dims = d;
  for (std::size_t i = 0; i < d; ++i) runs.count *= box[i].end - box[i].begin;
  return runs;
}

// Global flat index of the first element of a run.
std::int64_t run_start(std::span<const BoxDim> box, const Runs& runs, std::int64_t run) {
  std::int64_t flat = 0, stride = 1;
  for (std::size_t d = box.size(); d > 0; --d) {
    const BoxDim& dim = box[d - 1];
    std::int64_t at = dim.begin;
    if (d - 1 < runs.dims) {
      at += run % (dim.end - dim.begin);
      run /= dim.end - dim.begin;
    }
    flat += at * stride;
    stride *= dim.size;
  }
  return flat;
}

// Elements [start, start + n) of the global tensor.
void fill_range(float* out, std::int64_t start, std::int64_t n, PhiloxKey key,
                std::uint32_t tensor_id, float std) {
  const auto normal_groups = tables().random.normal_groups;
  auto part_of_group = [&](std::int64_t first, std::int64_t count) {
    float group[4];
    normal_groups(group, static_cast<std::uint64_t>(first / 4), 1, key, tensor_id, std);
    std::memcpy(out + (first - start), group + first % 4,
                static_cast<std::size_t>(count) * sizeof(float));
  };
  std::int64_t at = start;
  const std::int64_t end = start + n;
  if (at % 4 != 0) {
    const std::int64_t count = std::min(n, 4 - at % 4);
    part_of_group(at, count);
    at += count;
  }
  const std::int64_t groups = (end - at) / 4;
  if (groups > 0) {
    normal_groups(out + (at - start), static_cast<std::uint64_t>(at / 4), groups, key, tensor_id,
                  std);
    at += 4 * groups;
  }
  if (at < end) part_of_group(at, end - at);
}

}  // namespace

void fill_normal(float* out, std::span<const BoxDim> box, PhiloxKey key, std::uint32_t tensor_id,
                 float std) {
  for (const BoxDim& d : box) {
    FF_CHECK(0 <= d.begin && d.begin <= d.end && d.end <= d.size, "[{}, {}) of {}", d.begin, d.end,
             d.size);
    if (d.begin == d.end) return;
  }
  const Runs runs = runs_of(box);
  const std::int64_t pieces = (runs.length + kPiece - 1) / kPiece;
  const std::int64_t cost = 8 * std::min(kPiece, runs.length);
  parallel_ranges(runs.count * pieces, cost, [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t item = b; item < e; ++item) {
      const std::int64_t run = item / pieces, first = item % pieces * kPiece;
      fill_range(out + run * runs.length + first, run_start(box, runs, run) + first,
                 std::min(kPiece, runs.length - first), key, tensor_id, std);
    }
  });
}

}  // namespace fourfold::kernels
