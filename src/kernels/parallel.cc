#include "kernels/parallel.h"

#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>

namespace fourfold::kernels {
namespace {

// Elements below which another thread costs more than it saves (about 10 us of work).
constexpr std::int64_t kGrain = 1 << 15;

}  // namespace

std::int64_t part_count(std::int64_t items, std::int64_t cost) {
  if (items <= 0) return 0;
  if (at::in_parallel_region()) return 1;
  const std::int64_t by_work = items * std::max<std::int64_t>(cost, 1) / kGrain;
  return std::clamp<std::int64_t>(std::min(by_work, items), 1, at::get_num_threads());
}

void for_parts(std::int64_t parts, std::int64_t items,
               FunctionRef<void(std::int64_t, std::int64_t, std::int64_t)> f) {
  if (parts <= 0) return;
  if (parts == 1) return f(0, 0, items);
  at::parallel_for(0, parts, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t part = first; part < last; ++part) {
      f(part, items * part / parts, items * (part + 1) / parts);
    }
  });
}

void parallel_elements(std::int64_t n, FunctionRef<void(std::int64_t, std::int64_t)> f) {
  constexpr std::int64_t kUnit = 64;
  const std::int64_t units = (n + kUnit - 1) / kUnit;
  parallel_ranges(units, kUnit, [&](std::int64_t begin, std::int64_t end) {
    f(begin * kUnit, std::min(n, end * kUnit));
  });
}

Scratch::Scratch(std::int64_t floats)
    : data_(static_cast<float*>(c10::GetCPUAllocator()->raw_allocate(
          static_cast<std::size_t>(std::max<std::int64_t>(floats, 16)) * sizeof(float)))) {}

Scratch::~Scratch() { c10::GetCPUAllocator()->raw_deallocate(data_); }

void with_row_sums(std::int64_t rows, std::int64_t cost, std::int64_t width, float* target,
                   FunctionRef<void(std::int64_t, std::int64_t, float*)> f) {
  const std::int64_t parts = part_count(rows, cost);
  if (target == nullptr) {
    for_parts(parts, rows, [&](std::int64_t, std::int64_t b, std::int64_t e) { f(b, e, nullptr); });
    return;
  }
  // Parts are a cache line and more apart.
  const std::int64_t stride = (width + 31) / 16 * 16;
  Scratch sums(parts * stride);
  for_parts(parts, rows, [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
    float* own = sums.data() + part * stride;
    std::memset(own, 0, static_cast<std::size_t>(width) * sizeof(float));
    f(begin, end, own);
  });
  for (std::int64_t part = 0; part < parts; ++part) {
    const float* own = sums.data() + part * stride;
    for (std::int64_t i = 0; i < width; ++i) target[i] += own[i];
  }
}

}  // namespace fourfold::kernels
