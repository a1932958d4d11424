#include "parallel/grouped_product.h"

#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "device/tensors.h"
#include "kernels/elementwise.h"
#include "kernels/few_rows.h"
#include "kernels/parallel.h"
#include "kernels/tile_product.h"

namespace fourfold {
namespace {

/// What one thread multiplies at once: all rows of a group, and of the dim of `width` that is cut
/// for threads the range [begin, end).
struct Piece {
  std::int64_t group, first_row, rows, begin, end;
};

// Cuts fall on multiples of this: whole vectors, whole cache lines of either type.
constexpr std::int64_t kBlock = 64;
// What reading a group's weights (or writing their gradient) costs, in rows of it.
constexpr std::int64_t kRowsOfWeights = 16;

// Calls f(piece) for pieces that cover [0, width) of every group, on the intra-op threads, each
// with the same share of the work. `product` is the third dim, for the cost.
void for_pieces(std::span<const std::int64_t> rows_of_group, std::int64_t width,
                std::int64_t product, kernels::FunctionRef<void(const Piece&)> f) {
  const std::int64_t blocks = (width + kBlock - 1) / kBlock;
  std::int64_t total = 0;
  for (std::int64_t rows : rows_of_group) total += (rows + kRowsOfWeights) * blocks;
  kernels::parallel_ranges(total, kBlock * product, [&](std::int64_t first, std::int64_t last) {
    std::int64_t at = 0, first_row = 0;
    for (std::size_t g = 0; g < rows_of_group.size(); ++g) {
      const std::int64_t cost = rows_of_group[g] + kRowsOfWeights;
      // Two neighbours find the same cut, whole blocks of this group.
      const auto cut = [&](std::int64_t where) {
        const std::int64_t block = std::clamp<std::int64_t>((where - at) / cost, 0, blocks);
        return std::min(block * kBlock, width);
      };
      const std::int64_t begin = cut(first), end = cut(last);
      if (begin < end) {
        f({static_cast<std::int64_t>(g), first_row, rows_of_group[g], begin, end});
      }
      at += cost * blocks;
      first_row += rows_of_group[g];
    }
  });
}

// The block of a dense matrix with these rows and columns.
at::Tensor block_of(const at::Tensor& matrix, std::int64_t row, std::int64_t rows,
                    std::int64_t column, std::int64_t columns) {
  const std::int64_t stride = matrix.size(1);
  return matrix.as_strided({rows, columns}, {stride, 1},
                           matrix.storage_offset() + row * stride + column);
}

// Both go past the dispatcher: a pool's thread has none of the caller's modes (such as that no
// graph is wanted).
void multiply(const at::Tensor& a, const at::Tensor& b, at::Tensor out) {
  at::cpu::mm_out(out, a, b);
}
void multiply_and_add(const at::Tensor& a, const at::Tensor& b, at::Tensor out) {
  at::cpu::addmm_out(out, out, a, b, 1, 1);
}

// By what a piece is multiplied.
enum class Way { kTiles, kFewRows, kLibrary };

// `limit`: up to how many rows of f32 kernels/few_rows.h is faster.
Way way_of(const Piece& p, const at::Tensor& x, F32Products how, std::int64_t limit) {
  // The library makes code for every number of rows that it has not met yet.
  if (x.scalar_type() == at::kBFloat16) {
    return kernels::has_tile_product() ? Way::kTiles : Way::kLibrary;
  }
  if (how == F32Products::kThreeBf16) return Way::kTiles;
  return p.rows <= limit ? Way::kFewRows : Way::kLibrary;
}

void check_rows(const at::Tensor& rows, std::span<const std::int64_t> rows_of_group) {
  const auto total = std::accumulate(rows_of_group.begin(), rows_of_group.end(), std::int64_t{0});
  FF_CHECK(rows.size(0) == total, "{} rows, the groups have {}", rows.size(0), total);
}

std::int64_t groups_of(std::span<const std::int64_t> rows_of_group) {
  return std::max<std::int64_t>(1, std::ssize(rows_of_group));
}

}  // namespace

void grouped_product_forward(const at::Tensor& x, const at::Tensor& w,
                             std::span<const std::int64_t> rows_of_group, at::Tensor out,
                             F32Products how) {
  check_rows(x, rows_of_group);
  const std::int64_t n = w.size(0) / groups_of(rows_of_group), k = w.size(1);
  for_pieces(rows_of_group, n, k, [&](const Piece& p) {
    const std::int64_t width = p.end - p.begin, from = p.first_row * k,
                       weights = (p.group * n + p.begin) * k, to = p.first_row * n + p.begin;
    switch (way_of(p, x, how, kernels::few_rows_forward_limit())) {
      case Way::kTiles:
        return with_type(tensor_dtype(x), [&]<class T>(T) {
          kernels::tile_product(kernels::Factor<T>{elements<T>(x) + from, k},
                                kernels::Factor<T>{elements<T>(w) + weights, k}, {p.rows, width, k},
                                kernels::ProductTarget<T>{elements<T>(out) + to, n});
        });
      case Way::kFewRows:
        return kernels::few_rows_forward(elements<float>(x) + from, elements<float>(w) + weights,
                                         p.rows, width, k, elements<float>(out) + to, n);
      case Way::kLibrary:
        break;
    }
    // MKL packs the weights of a call; more of them than this fall out of the cache meanwhile.
    constexpr std::int64_t kAtOnce = 512;
    for (std::int64_t i = p.begin; p.rows > 0 && i < p.end; i += kAtOnce) {
      const std::int64_t columns = std::min(kAtOnce, p.end - i);
      multiply(rows_of(x, p.first_row, p.first_row + p.rows),
               block_of(w, p.group * n + i, columns, 0, k).t(),
               block_of(out, p.first_row, p.rows, i, columns));
    }
  });
}

void grouped_product_input_gradient(const at::Tensor& dy, const at::Tensor& w,
                                    std::span<const std::int64_t> rows_of_group, at::Tensor out,
                                    F32Products how) {
  check_rows(dy, rows_of_group);
  const std::int64_t n = dy.size(1), k = w.size(1);
  for_pieces(rows_of_group, k, n, [&](const Piece& p) {
    if (p.rows == 0) return;
    const std::int64_t width = p.end - p.begin, from = p.first_row * n,
                       weights = p.group * n * k + p.begin, to = p.first_row * k + p.begin;
    switch (way_of(p, dy, how, kernels::few_rows_gradient_limit())) {
      case Way::kTiles:
        return with_type(tensor_dtype(dy), [&]<class T>(T) {
          kernels::tile_product(kernels::Factor<T>{elements<T>(dy) + from, n},
                                kernels::Factor<T>{elements<T>(w) + weights, k, true},
                                {p.rows, width, n},
                                kernels::ProductTarget<T>{elements<T>(out) + to, k});
        });
      case Way::kFewRows:
        return kernels::few_rows_input_gradient(elements<float>(dy) + from,
                                                elements<float>(w) + weights, k, p.rows, n, width,
                                                elements<float>(out) + to, k);
      case Way::kLibrary:
        break;
    }
    multiply(block_of(dy, p.first_row, p.rows, 0, n), block_of(w, p.group * n, n, p.begin, width),
             block_of(out, p.first_row, p.rows, p.begin, width));
  });
}

void grouped_product_weight_gradient(const at::Tensor& dy, const at::Tensor& x,
                                     std::span<const std::int64_t> rows_of_group,
                                     const at::Tensor& out, bool accumulate, F32Products how) {
  check_rows(dy, rows_of_group);
  const std::int64_t n = dy.size(1), k = x.size(1);
  const DType dtype = tensor_dtype(dy);
  for_pieces(rows_of_group, n, k, [&](const Piece& p) {
    const std::int64_t width = p.end - p.begin, first = p.group * n + p.begin,
                       left = p.first_row * n + p.begin, right = p.first_row * k;
    float* target = elements<float>(out) + first * k;
    if (p.rows == 0) {
      if (!accumulate) std::fill_n(target, width * k, 0.0f);
      return;
    }
    switch (way_of(p, dy, how, kernels::few_rows_gradient_limit())) {
      case Way::kTiles:
        return with_type(dtype, [&]<class T>(T) {
          kernels::tile_product(kernels::Factor<T>{elements<T>(dy) + left, n, true},
                                kernels::Factor<T>{elements<T>(x) + right, k, true},
                                {width, k, p.rows},
                                kernels::ProductTarget<float>{target, k, accumulate});
        });
      case Way::kFewRows:
        return kernels::few_rows_weight_gradient(elements<float>(dy) + left, n,
                                                 elements<float>(x) + right, p.rows, width, k,
                                                 target, accumulate);
      case Way::kLibrary:
        break;
    }
    const at::Tensor turned = block_of(dy, p.first_row, p.rows, p.begin, width).t();
    const at::Tensor rows = block_of(x, p.first_row, p.rows, 0, k);
    if (dtype == DType::kF32) {
      (accumulate ? multiply_and_add : multiply)(turned, rows, block_of(out, first, width, 0, k));
      return;
    }
    // As product_weight_gradient() has it: rounded once, summed in f32.
    const at::Tensor product = empty_tensor({width, k}, dtype);
    multiply(turned, rows, product);
    const auto* rounded = elements<BFloat16>(product);
    if (accumulate) {
      kernels::accumulate(target, rounded, width * k);
    } else {
      kernels::cast(rounded, target, width * k);
    }
  });
}

}  // namespace fourfold
