// Every fused kernel against the LibTorch operators that do the same, in one run on the same
// memory, with the caching allocator for both. Prints milliseconds and the ratio (above 1: the
// kernel is faster). Usage: bench_kernels [threads [filter]].

#include <ATen/core/TensorBody.h>
#include <ATen/ops/_fused_adamw_ops.h>
#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/embedding_ops.h>
#include <ATen/ops/empty_ops.h>
#include <ATen/ops/gelu_backward_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/index_add_ops.h>
#include <ATen/ops/linalg_vector_norm_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/native_dropout_ops.h>
#include <ATen/ops/native_layer_norm_backward_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>
#include <ATen/ops/nll_loss_backward_ops.h>
#include <ATen/ops/nll_loss_forward_ops.h>
#include <ATen/ops/normal_ops.h>
#include <ATen/ops/rms_norm_ops.h>
#include <ATen/ops/silu_backward_ops.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/sum_ops.h>
#include <fmt/core.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "device/caching_allocator.h"
#include "device/intra_op_threads.h"
#include "kernels/activation.h"
#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/exact_sum.h"
#include "kernels/norm.h"
#include "kernels/random.h"
#include "kernels/rotary.h"
#include "take_turns.h"

namespace {

namespace ops = at::_ops;
namespace kn = fourfold::kernels;
using fourfold::BFloat16;

std::string filter;

void compare(const std::string& name, const std::function<void()>& ours,
             const std::function<void()>& theirs) {
  if (name.find(filter) == std::string::npos) return;
  const auto [mine, twin] = fourfold::take_turns(ours, theirs);
  fmt::print("{:<34} {:>9.3f} ms {:>9.3f} ms {:>6.2f}x\n", name, mine, twin, twin / mine);
}

template <class T>
constexpr at::ScalarType kType = std::is_same_v<T, float> ? at::kFloat : at::kBFloat16;
at::Tensor empty(std::vector<std::int64_t> shape, at::ScalarType type) {
  return ops::empty_memory_format::call(c10::fromIntArrayRefSlow(shape), type, std::nullopt,
                                        std::nullopt, std::nullopt, std::nullopt);
}

at::Tensor normal(std::vector<std::int64_t> shape, at::ScalarType type = at::kFloat,
                  float std = 1.0f) {
  at::Tensor x = empty(shape, at::kFloat);
  const kn::BoxDim whole{0, x.numel(), x.numel()};
  kn::fill_normal(x.mutable_data_ptr<float>(), {&whole, 1}, {7, 8}, 1, std);
  return type == at::kFloat ? x : x.to(type);
}

at::Tensor tokens(std::int64_t n, std::int64_t vocab) {
  at::Tensor t = empty({n}, at::kLong);
  for (std::int64_t i = 0; i < n; ++i) t.mutable_data_ptr<std::int64_t>()[i] = i * 7919 % vocab;
  return t;
}

template <class T>
T* data(const at::Tensor& t) {
  return static_cast<T*>(t.data_ptr());
}
float* floats(const at::Tensor& t) { return data<float>(t); }

template <class T>
std::string named(const char* name) {
  return std::string(name) + (std::is_same_v<T, float> ? " fp32" : " bf16");
}

template <class T>
void bench_norm() {
  constexpr std::int64_t kRows = 4096, kCols = 1024;
  const at::Tensor x = normal({kRows, kCols}, kType<T>), dy = normal({kRows, kCols}, kType<T>);
  const at::Tensor gain = normal({kCols}), bias = normal({kCols});
  const at::Tensor gain_t = gain.to(kType<T>), bias_t = bias.to(kType<T>);
  at::Tensor y = empty({kRows, kCols}, kType<T>), mean = normal({kRows}), rstd = normal({kRows});
  const std::vector<c10::SymInt> shape{kCols};
  compare(
      named<T>("rms_norm forward"),
      [&] {
        kn::rms_norm_forward(data<T>(x), floats(gain), 1e-5f, kRows, kCols, data<T>(y),
                             floats(rstd));
      },
      [&] { ops::rms_norm::call(x, shape, gain_t, 1e-5); });
  compare(
      named<T>("layer_norm forward"),
      [&] {
        kn::layer_norm_forward(data<T>(x), floats(gain), floats(bias), 1e-5f, kRows, kCols,
                               data<T>(y), floats(mean), floats(rstd));
      },
      [&] { ops::native_layer_norm::call(x, shape, gain_t, bias_t, 1e-5); });
  const auto kept = ops::native_layer_norm::call(x, shape, gain_t, bias_t, 1e-5);
  compare(
      named<T>("layer_norm backward + residual"),
      [&] {
        kn::norm_backward(data<T>(dy), data<T>(x), floats(mean), floats(rstd), floats(gain),
                          data<T>(dy), kRows, kCols, data<T>(y), floats(gain), floats(bias));
      },
      [&] {
        const auto grads = ops::native_layer_norm_backward::call(
            dy, x, shape, std::get<1>(kept), std::get<2>(kept), gain_t, bias_t, {true, true, true});
        ops::add_Tensor::call(std::get<0>(grads), dy, 1);
      });
}

template <class T>
void bench_activation() {
  constexpr std::int64_t kRows = 2048, kCols = 4096;
  const at::Tensor x = normal({kRows, kCols}, kType<T>), dy = normal({kRows, kCols}, kType<T>);
  const at::Tensor bias = normal({kCols}), bias_t = bias.to(kType<T>), dbias = normal({kCols});
  at::Tensor y = empty({kRows, kCols}, kType<T>);
  compare(
      named<T>("bias + gelu forward"),
      [&] { kn::bias_gelu_forward(data<T>(x), floats(bias), kRows, kCols, data<T>(y)); },
      [&] { ops::gelu::call(ops::add_Tensor::call(x, bias_t, 1), "tanh"); });
  compare(
      named<T>("bias + gelu backward"),
      [&] {
        kn::bias_gelu_backward(data<T>(dy), data<T>(x), floats(bias), kRows, kCols, data<T>(y),
                               floats(dbias));
      },
      [&] {
        const at::Tensor dx =
            ops::gelu_backward::call(dy, ops::add_Tensor::call(x, bias_t, 1), "tanh");
        ops::sum_dim_IntList::call(dx, std::vector<std::int64_t>{0}, false, std::nullopt);
      });
  const at::Tensor gate_up = normal({kRows, 2 * kCols}, kType<T>);
  at::Tensor dgate_up = empty({kRows, 2 * kCols}, kType<T>);
  compare(
      named<T>("swiglu forward"),
      [&] { kn::swiglu_forward(data<T>(gate_up), kRows, kCols, data<T>(y)); },
      [&] { ops::mul_Tensor::call(ops::silu::call(x), dy); });
  compare(
      named<T>("swiglu backward"),
      [&] { kn::swiglu_backward(data<T>(dy), data<T>(gate_up), kRows, kCols, data<T>(dgate_up)); },
      [&] {
        const at::Tensor silu = ops::silu::call(x);
        ops::mul_Tensor::call(dy, silu);
        ops::silu_backward::call(ops::mul_Tensor::call(dy, y), x);
      });
}

template <class T>
void bench_dropout_and_passes() {
  constexpr std::int64_t kRows = 2048, kCols = 4096;
  const at::Tensor x = normal({kRows, kCols}, kType<T>), res = normal({kRows, kCols}, kType<T>);
  const at::Tensor bias = normal({kCols}), bias_t = bias.to(kType<T>);
  at::Tensor y = empty({kRows, kCols}, kType<T>), sums = normal({kCols});
  kn::DropoutSpec spec;
  for (float p : {0.1f, 0.0f}) {
    spec.p = p;
    compare(
        named<T>(p > 0 ? "residual + dropout(x + b)" : "residual + x + b"),
        [&] {
          kn::residual_dropout_forward(data<T>(x), floats(bias), data<T>(res), data<T>(y), kRows,
                                       kCols, spec);
        },
        [&] {
          at::Tensor in = ops::add_Tensor::call(x, bias_t, 1);
          if (p > 0) in = std::get<0>(ops::native_dropout::call(in, p, true));
          ops::add_Tensor::call(in, res, 1);
        });
  }
  compare(
      named<T>("column sums"), [&] { kn::column_sums(data<T>(x), kRows, kCols, floats(sums)); },
      [&] { ops::sum_dim_IntList::call(x, std::vector<std::int64_t>{0}, false, std::nullopt); });
  compare(
      named<T>("exact sum of squares"),
      [&] {
        fourfold::ExactSum sum;
        kn::add_squares(data<T>(x), x.numel(), sum);
      },
      [&] { ops::linalg_vector_norm::call(x, 2, std::nullopt, false, std::nullopt); });
  const std::vector<float> table = kn::rotary_table(kRows, 64, 1e4);
  compare(
      named<T>("rotary (twin: one add)"),
      [&] { kn::rotary(data<T>(y), kRows, kCols, kCols / 64, 64, kRows, 0, table.data(), false); },
      [&] { ops::add_Tensor::call(x, res, 1); });
}

template <class T>
void bench_attention(std::int64_t batch, std::int64_t heads, std::int64_t seq, std::int64_t dim) {
  const std::int64_t width = 3 * heads * dim;
  const at::Tensor qkv = normal({batch * seq, width}, kType<T>);
  at::Tensor dqkv = empty({batch * seq, width}, kType<T>);
  at::Tensor out = empty({batch * seq, heads * dim}, kType<T>);
  const at::Tensor dout = normal({batch * seq, heads * dim}, kType<T>);
  at::Tensor lse = normal({batch * heads * seq});
  const kn::AttentionShape shape{batch, seq, seq, heads, heads, dim};
  const auto in = kn::fused_qkv<const T>(data<T>(qkv), seq, heads, heads, dim);
  const auto grads = kn::fused_qkv(data<T>(dqkv), seq, heads, heads, dim);
  const auto heads_out = kn::dense_heads(data<T>(out), seq, heads, dim);
  const auto heads_dout = kn::dense_heads<const T>(data<T>(dout), seq, heads, dim);
  auto part = [&](std::int64_t i) {  // [batch, heads, seq, dim] views, as the operator wants.
    return qkv.as_strided({batch, heads, seq, dim}, {seq * width, dim, width, 1}, i * heads * dim);
  };
  const at::Tensor q = part(0), k = part(1), v = part(2);
  const at::Tensor their_dout =
      dout.as_strided({batch, heads, seq, dim}, {seq * heads * dim, dim, heads * dim, 1}, 0);
  auto forward = [&] {
    kn::attention_forward<T>(shape, in.q, in.k, in.v, heads_out, floats(lse), {});
  };
  auto their_forward = [&] {
    return ops::_scaled_dot_product_flash_attention_for_cpu::call(q, k, v, 0.0, true, std::nullopt,
                                                                  std::nullopt);
  };
  const std::string size = fmt::format(" B{} H{} S{} D{}", batch, heads, seq, dim);
  compare(named<T>("attention f") + size, forward, [&] { their_forward(); });
  compare(
      named<T>("attention f+b") + size,
      [&] {
        forward();
        kn::attention_backward<T>(shape, in.q, in.k, in.v, heads_out.as_const(), heads_dout,
                                  floats(lse), grads.q, grads.k, grads.v, {});
      },
      [&] {
        const auto kept = their_forward();
        ops::_scaled_dot_product_flash_attention_for_cpu_backward::call(
            their_dout, q, k, v, std::get<0>(kept), std::get<1>(kept), 0.0, true, std::nullopt,
            std::nullopt);
      });
}

template <class T>
void bench_generation() {
  constexpr std::int64_t kBatch = 4, kHeads = 8, kKeys = 1024, kDim = 64;
  const at::Tensor q = normal({kBatch, kHeads, 1, kDim}, kType<T>);
  const at::Tensor k = normal({kBatch, kHeads, kKeys, kDim}, kType<T>);
  at::Tensor out = empty({kBatch, kHeads * kDim}, kType<T>);
  const auto cache = kn::cache_heads<const T>(data<T>(k), kHeads, kKeys, kDim);
  compare(
      named<T>("attention of 1 query, 1024 keys"),
      [&] {
        kn::attention_forward<T>({kBatch, 1, kKeys, kHeads, kHeads, kDim},
                                 kn::dense_heads<const T>(data<T>(q), 1, kHeads, kDim), cache,
                                 cache, kn::dense_heads(data<T>(out), 1, kHeads, kDim), nullptr,
                                 {});
      },
      [&] {
        ops::_scaled_dot_product_flash_attention_for_cpu::call(q, k, k, 0.0, false, std::nullopt,
                                                               std::nullopt);
      });
}

template <class T>
void bench_cross_entropy(std::int64_t rows, std::int64_t vocab) {
  const at::Tensor logits = normal({rows, vocab}, kType<T>);
  at::Tensor work = logits.clone();
  const at::Tensor targets = tokens(rows, vocab);
  at::Tensor max = normal({rows}), sum = normal({rows}), target = normal({rows}),
             scale = normal({rows});
  compare(
      named<T>("cross_entropy f+b") + fmt::format(" V{}", vocab),
      [&] {
        // The gradient overwrites the logits, so they are copied first (their time is in here).
        ops::copy_::call(work, logits, false);
        kn::row_max(data<T>(work), rows, vocab, floats(max));
        kn::sum_exp_and_target(data<T>(work), floats(max), data<std::int64_t>(targets), 0, rows,
                               vocab, floats(sum), floats(target));
        kn::softmax_gradient(data<T>(work), floats(max), floats(sum), data<std::int64_t>(targets),
                             0, floats(scale), rows, vocab);
      },
      [&] {
        const at::Tensor log_p = ops::_log_softmax::call(logits, 1, false);
        const auto loss = ops::nll_loss_forward::call(log_p, targets, std::nullopt, 1, -100);
        const at::Tensor grad = ops::nll_loss_backward::call(
            std::get<0>(loss), log_p, targets, std::nullopt, 1, -100, std::get<1>(loss));
        ops::_log_softmax_backward_data::call(grad, log_p, 1, kType<T>);
      });
}

void bench_adamw() {
  constexpr std::int64_t kN = 1 << 24;
  const at::Tensor grad = normal({kN});
  at::Tensor w = normal({kN}), m = normal({kN}), v = ops::mul_Tensor::call(w, w);
  at::Tensor copy = empty({kN}, at::kBFloat16), steps = normal({1});
  kn::AdamWStep step{.lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .weight_decay = 0.1f};
  kn::set_bias_corrections(step, 10);
  std::vector<at::Tensor> ws{w}, gs{grad}, ms{m}, vs{v}, none, ts{steps};
  auto theirs = [&] {
    ops::_fused_adamw_::call(ws, gs, ms, vs, none, ts, 1e-3, 0.9, 0.95, 0.1, 1e-8, false, false,
                             std::nullopt, std::nullopt);
  };
  compare(
      "adamw", [&] { kn::adamw(floats(w), floats(grad), floats(m), floats(v), kN, step, nullptr); },
      theirs);
  compare(
      "adamw + bf16 copy",
      [&] {
        kn::adamw(floats(w), floats(grad), floats(m), floats(v), kN, step, data<BFloat16>(copy));
      },
      [&] {
        theirs();
        ops::copy_::call(copy, w, false);
      });
  compare(
      "fill_normal",
      [&] {
        const kn::BoxDim whole{0, kN, kN};
        kn::fill_normal(floats(m), {&whole, 1}, {1, 2}, 3, 0.02f);
      },
      [&] { ops::normal_::call(m, 0.0, 0.02, std::nullopt); });
  compare(
      "cast fp32 to bf16", [&] { kn::cast(floats(w), data<BFloat16>(copy), kN); },
      [&] { ops::copy_::call(copy, w, false); });
}

void bench_embedding() {
  constexpr std::int64_t kVocab = 50257, kCols = 512, kRows = 4096;
  const at::Tensor table = normal({kVocab, kCols}), ids = tokens(kRows, kVocab);
  const at::Tensor dout = normal({kRows, kCols});
  at::Tensor out = empty({kRows, kCols}, at::kFloat), grad = normal({kVocab, kCols});
  compare(
      "embedding forward",
      [&] {
        kn::embedding_forward(data<std::int64_t>(ids), floats(table), 0, kVocab, kRows, kCols,
                              floats(out));
      },
      [&] { ops::embedding::call(table, ids, -1, false, false); });
  compare(
      "embedding backward",
      [&] {
        kn::embedding_backward(data<std::int64_t>(ids), floats(dout), 0, kVocab, kRows, kCols,
                               floats(grad));
      },
      [&] { ops::index_add_::call(grad, 0, ids, dout, 1); });
}

template <class T>
void bench_type() {
  bench_norm<T>();
  bench_activation<T>();
  bench_dropout_and_passes<T>();
  bench_attention<T>(8, 8, 256, 64);
  bench_attention<T>(2, 8, 1024, 64);
  bench_generation<T>();
  bench_cross_entropy<T>(1024, 8192);
  bench_cross_entropy<T>(256, 50304);
}

}  // namespace

int main(int argc, char** argv) {
  fourfold::install_caching_allocator();
  fourfold::set_intra_op_threads(argc > 1 ? std::atoi(argv[1]) : 1);
  if (argc > 2) filter = argv[2];
  fmt::print("{:<34} {:>12} {:>12} {:>7}\n", "kernel", "fourfold", "LibTorch", "ratio");
  bench_type<float>();
  bench_type<BFloat16>();
  bench_adamw();
  bench_embedding();
}
