#pragma once

#include <cstdint>
#include <type_traits>

#include "base/bfloat16.h"
#include "base/exact_sum.h"
#include "base/philox.h"
#include "kernels/activation.h"
#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/exact_sum.h"
#include "kernels/few_rows.h"
#include "kernels/norm.h"
#include "kernels/rotary.h"
#include "kernels/rows.h"
#include "kernels/tile_product.h"

/// The vector kernels of one capability, as pointers. They are serial and work on the rows they are
/// given; the public functions of kernels/*.h cut the work into rows for threads and call them.
/// A pointer of the same name and signature as a public function does what that one says.
namespace fourfold::kernels {

template <class T>
struct NormTable {
  decltype(&kernels::rms_sum_squares<T>) rms_sum_squares;
  decltype(&kernels::row_mean_m2<T>) row_mean_m2;
  decltype(&kernels::norm_apply<T>) norm_apply;
  decltype(&kernels::rms_norm_forward<T>) rms_norm_forward;
  decltype(&kernels::layer_norm_forward<T>) layer_norm_forward;
  decltype(&kernels::norm_backward_sums<T>) norm_backward_sums;
  decltype(&kernels::norm_backward_apply<T>) norm_backward_apply;
  decltype(&kernels::norm_backward<T>) norm_backward;
};

template <class T>
struct ActivationTable {
  decltype(&kernels::bias_gelu_forward<T>) bias_gelu_forward;
  decltype(&kernels::bias_gelu_backward<T>) bias_gelu_backward;
  decltype(&kernels::swiglu_forward<T>) swiglu_forward;
  decltype(&kernels::swiglu_backward<T>) swiglu_backward;
};

template <class T>
struct DropoutTable {
  decltype(&kernels::residual_dropout_forward<T>) forward;
  decltype(&kernels::residual_dropout_backward<T>) backward;
};

template <class T>
struct ElementwiseTable {
  decltype(&kernels::accumulate<T>) accumulate;
  decltype(&kernels::scale<T>) scale;
  decltype(&kernels::add<T>) add;
  decltype(&kernels::add_bias<T>) add_bias;
  decltype(&kernels::add_scaled_bias<T>) add_scaled_bias;
  decltype(&kernels::scaled_bias_backward<T>) scaled_bias_backward;
  decltype(&kernels::column_sums<T>) column_sums;
  /// Pairs (i, i + half) of each head turned; `table` is the row's cosines then sines.
  void (*rotate_row)(T* row, std::int64_t heads, std::int64_t head_dim, const float* table,
                     bool inverse);
};

struct CastTable {
  void (*to_bf16)(const float* from, BFloat16* to, std::int64_t n);
  void (*to_float)(const BFloat16* from, float* to, std::int64_t n);
};

template <class T>
struct CrossEntropyTable {
  decltype(&kernels::row_max<T>) row_max;
  decltype(&kernels::sum_exp_and_target<T>) sum_exp_and_target;
  decltype(&kernels::softmax_gradient<T>) softmax_gradient;
};

struct OptimizerTable {
  decltype(&kernels::adamw) adamw;
};

template <class T>
struct ExactSumTable {
  decltype(&kernels::add_squares<T>) add_squares;
  decltype(&kernels::add_values<T>) add_values;
};

struct RandomTable {
  /// Standard normal numbers times std for flat indices [4·first_group, 4·(first_group + groups)).
  void (*normal_groups)(float* out, std::uint64_t first_group, std::int64_t groups, PhiloxKey key,
                        std::uint32_t tensor_id, float std);
};

template <class T>
struct RowsTable {
  decltype(&kernels::sum_rows<T>) sum_rows;
};

/// Each with the floats of scratch that it needs.
struct FewRowsTable {
  std::int64_t forward_rows, gradient_rows;  ///< Up to which they are faster than a library.
  using Size = std::int64_t (*)(std::int64_t rows, std::int64_t n, std::int64_t k);
  Size forward_scratch;
  void (*forward)(const float* x, const float* w, std::int64_t rows, std::int64_t n, std::int64_t k,
                  float* y, std::int64_t y_stride, float* scratch);
  Size input_gradient_scratch;
  void (*input_gradient)(const float* dy, const float* w, std::int64_t w_stride, std::int64_t rows,
                         std::int64_t n, std::int64_t k, float* dx, std::int64_t dx_stride,
                         float* scratch);
  Size weight_gradient_scratch;
  void (*weight_gradient)(const float* dy, std::int64_t dy_stride, const float* x,
                          std::int64_t rows, std::int64_t n, std::int64_t k, float* dw,
                          bool accumulate, float* scratch);
};

/// One (sample, kv head) of attention: pointers to its first row, strides of rows in elements.
template <class T>
struct HeadTask {
  std::int64_t queries = 0, keys = 0, head_dim = 0;
  std::int64_t group = 1;                               ///< Query heads that share the key head.
  std::int64_t q_head_stride = 0, out_head_stride = 0;  ///< From one of them to the next.
  const T *q = nullptr, *k = nullptr, *v = nullptr;
  std::int64_t q_stride = 0, k_stride = 0, v_stride = 0;
  float* lse = nullptr;  ///< [group, queries], or null in forward.
  AttentionDropout dropout{};
  std::int64_t sample = 0, head = 0;  ///< Global numbers; head of the first of the group.
};
template <class T>
struct AttentionTable {
  /// Floats of scratch that forward (either) and backward need.
  std::int64_t (*forward_scratch)(const HeadTask<T>& task);
  std::int64_t (*backward_scratch)(const HeadTask<T>& task);
  void (*forward)(const HeadTask<T>& task, T* out, std::int64_t out_stride, float* scratch);
  /// The same for a few queries over many keys, without packing them.
  void (*forward_few)(const HeadTask<T>& task, T* out, std::int64_t out_stride, float* scratch);
  void (*backward)(const HeadTask<T>& task, const T* out, const T* dout, std::int64_t out_stride,
                   T* dq, T* dk, T* dv, std::int64_t dq_stride, std::int64_t dk_stride,
                   std::int64_t dv_stride, float* scratch);
};

/// Rows or columns of a panel of a packed factor, and elements of a step along the sum.
inline constexpr std::int64_t kTilePanel = 32;
/// A range of panels.
struct Panels {
  std::int64_t begin, end;
};
/// Both factors, whole; bf16, of float hi and lo.
struct PackedFactors {
  const std::uint16_t *left, *right;
};
template <class T>
using PackFactor = void (*)(const Factor<T>& factor, bool left, std::int64_t rows,
                            std::int64_t depth, Panels panels, std::uint16_t* packed);
template <class Out>
using MultiplyPanels = void (*)(const PackedFactors& packed, ProductShape shape, Panels left,
                                Panels right, const ProductTarget<Out>& target, float* sums);
/// Nulls where there are no tiles.
struct TileProductTable {
  std::int64_t sums = 0;  ///< Floats that a product needs.
  PackFactor<float> pack_f32 = nullptr;
  PackFactor<BFloat16> pack_bf16 = nullptr;
  MultiplyPanels<float> f32 = nullptr, bf16_to_f32 = nullptr;
  MultiplyPanels<BFloat16> bf16 = nullptr;
};

/// A table for each element type.
template <template <class> class Table>
struct ForBoth {
  Table<float> f32;
  Table<BFloat16> bf16;

  template <class T>
  const Table<T>& get() const {
    if constexpr (std::is_same_v<T, float>) {
      return f32;
    } else {
      return bf16;
    }
  }
};

struct KernelTables {
  ForBoth<NormTable> norm;
  ForBoth<ActivationTable> activation;
  ForBoth<DropoutTable> dropout;
  ForBoth<ElementwiseTable> elementwise;
  CastTable cast;
  ForBoth<CrossEntropyTable> cross_entropy;
  OptimizerTable optimizer;
  ForBoth<ExactSumTable> exact_sum;
  RandomTable random;
  ForBoth<RowsTable> rows;
  FewRowsTable few_rows;
  ForBoth<AttentionTable> attention;
  TileProductTable tile_product;
};

enum class Capability { kDefault, kAvx2, kAvx512, kAmx };  // AMX: AVX-512 with AMX for bf16.

/// The tables of a capability; null where this CPU cannot run it or the build has no such code.
const KernelTables* tables_of(Capability capability);

/// The tables of the best capability that LibTorch uses on this CPU (it obeys
/// ATEN_CPU_CAPABILITY); fixed for the life of the process.
const KernelTables& tables();

}  // namespace fourfold::kernels
