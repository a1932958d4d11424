#include "kernels/dropout.h"

#include "base/check.h"
#include "kernels/parallel.h"
#include "kernels/vector/tables.h"

namespace fourfold::kernels {
namespace {

DropoutSpec from_row(const DropoutSpec& spec, std::int64_t row) {
  DropoutSpec later = spec;
  later.row0 += row;
  return later;
}

void check(const DropoutSpec& spec) {
  FF_CHECK(spec.p >= 0 && spec.p < 1, "dropout of {}", spec.p);
  FF_CHECK(spec.seq > 0 && spec.col0 >= 0, "seq {}, column {}", spec.seq, spec.col0);
  FF_CHECK(spec.layer < 1u << 16, "dropout layer {}", spec.layer);
}

}  // namespace

std::uint32_t dropout_threshold(float p) {
  return static_cast<std::uint32_t>(static_cast<double>(p) * 0x1p32);
}

template <class T>
void residual_dropout_forward(const T* in, const float* bias, const T* residual, T* out,
                              std::int64_t rows, std::int64_t cols, const DropoutSpec& spec) {
  check(spec);
  parallel_ranges(rows, 2 * cols, [&](std::int64_t b, std::int64_t e) {
    tables().dropout.get<T>().forward(in + b * cols, bias,
                                      residual != nullptr ? residual + b * cols : nullptr,
                                      out + b * cols, e - b, cols, from_row(spec, b));
  });
}

template <class T>
void residual_dropout_backward(const T* dout, T* din, float* dbias, std::int64_t rows,
                               std::int64_t cols, const DropoutSpec& spec) {
  check(spec);
  with_row_sums(rows, 2 * cols, cols, dbias, [&](std::int64_t b, std::int64_t e, float* sums) {
    tables().dropout.get<T>().backward(dout + b * cols, din != nullptr ? din + b * cols : nullptr,
                                       sums, e - b, cols, from_row(spec, b));
  });
}

#define FF_INSTANTIATE(T)                                                                       \
  template void residual_dropout_forward<T>(const T*, const float*, const T*, T*, std::int64_t, \
                                            std::int64_t, const DropoutSpec&);                  \
  template void residual_dropout_backward<T>(const T*, T*, float*, std::int64_t, std::int64_t,  \
                                             const DropoutSpec&);
FF_INSTANTIATE(float)
FF_INSTANTIATE(BFloat16)
#undef FF_INSTANTIATE

}  // namespace fourfold::kernels
