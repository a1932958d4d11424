#pragma once

#include <cstdint>

#include "base/bfloat16.h"
#include "base/philox.h"

/// Dropout whose mask is a function of global coordinates: the same on every grid and for every cut
/// into micro-batches, so backward makes it again and nothing is kept.
namespace fourfold::kernels {

/// Which elements are dropped. Local row i stands for row r = row0 + i of the micro-batch and for
/// the global row samples[r / seq]·seq + r mod seq (r itself when `samples` is null); local column
/// j for global column col0 + j. An element is kept when word (column mod 4) of
/// philox4x32({row low, row high ^ layer << 16, column / 4, step}, key) is at least p·2³²; what is
/// kept is scaled by 1 / (1 - p). Global rows stay below 2⁴⁸ and layers below 2¹⁶.
struct DropoutSpec {
  float p = 0;  ///< In [0, 1); 0 costs nothing.
  PhiloxKey key{};
  std::uint32_t step = 0;
  /// Of the place of dropout; places within one block need numbers of their own.
  std::uint32_t layer = 0;
  const std::int64_t* samples = nullptr;  ///< Global sample numbers in the step, one per sequence.
  std::int64_t seq = 1;
  std::int64_t row0 = 0;
  std::int64_t col0 = 0;
};

/// out = residual + dropout(in + bias), all [rows, cols]; `bias`[cols] and `residual` may be null
/// (the embedding's dropout has neither). out may be in or residual.
template <class T>
void residual_dropout_forward(const T* in, const float* bias, const T* residual, T* out,
                              std::int64_t rows, std::int64_t cols, const DropoutSpec& spec);

/// din = dropout(dout) with the mask of forward; dbias[cols] += Σ_rows din unless null. The
/// residual's gradient is dout itself. din may be dout; din may be null when only dbias is wanted.
template <class T>
void residual_dropout_backward(const T* dout, T* din, float* dbias, std::int64_t rows,
                               std::int64_t cols, const DropoutSpec& spec);

/// The smallest 32-bit word that keeps an element: p·2³².
std::uint32_t dropout_threshold(float p);

}  // namespace fourfold::kernels
