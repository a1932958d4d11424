#include "model/attention.h"

#include <algorithm>

#include "base/check.h"
#include "device/tensors.h"
#include "kernels/elementwise.h"
#include "kernels/rotary.h"

namespace fourfold {

Attention::Attention(const ParallelContext& context, const ModelSpec& spec,
                     const BlockLayers& layers, int block)
    : context_(context),
      block_(block),
      heads_(spec.heads / context.size(Axis::kX)),
      kv_heads_(std::max(1, spec.kv_heads / context.size(Axis::kX))),
      head_dim_(spec.head_dim),
      dropout_(static_cast<float>(spec.dropout)),
      qkv_(context, layers.qkv),
      projection_(context, layers.projection) {
  FF_CHECK(spec.heads % context.size(Axis::kX) == 0, "{} heads over x = {}", spec.heads,
           context.size(Axis::kX));
  FF_CHECK(
      spec.kv_heads % context.size(Axis::kX) == 0 || context.size(Axis::kX) % spec.kv_heads == 0,
      "{} key/value heads over x = {}", spec.kv_heads, context.size(Axis::kX));
  if (layers.qk_norm) {
    qk_norm_.emplace(context, *layers.qk_norm, heads_ * head_dim_, kv_heads_ * head_dim_);
  }
  if (spec.position == Position::kRotary) {
    rotary_table_ = kernels::rotary_table(spec.seq_len, spec.head_dim, spec.rope_theta);
  }
}

kernels::AttentionShape Attention::shape(std::int64_t rows, std::int64_t seq) const {
  return {rows / seq, seq, seq, heads_, kv_heads_, head_dim_};
}

kernels::AttentionDropout Attention::dropout(const MicroBatch& batch) const {
  kernels::AttentionDropout d;
  d.p = batch.dropout ? dropout_ : 0;
  d.key = philox_key(context_.seed, RandomPurpose::kAttentionDropout);
  d.step = static_cast<std::uint32_t>(batch.step);
  d.layer = static_cast<std::uint32_t>(block_);
  d.samples = batch.samples.data();
  d.first_head = context_.coords().x * heads_;
  return d;
}

void Attention::turn(const at::Tensor& qkv, std::int64_t seq, std::int64_t first_position,
                     bool inverse) const {
  if (rotary_table_.empty()) return;
  with_type(context_.compute, [&]<class T>(T) {
    kernels::rotary(elements<T>(qkv), qkv.size(0), qkv.size(1), heads_ + kv_heads_, head_dim_, seq,
                    first_position, rotary_table_.data(), inverse);
  });
}

Async<at::Tensor> Attention::project_qkv(const at::Tensor& x, std::int64_t seq,
                                         std::int64_t first_position,
                                         QkNorm4D::Saved& saved) const {
  const at::Tensor qkv = co_await qkv_.forward(x);
  if (qkv_.bias()) {
    with_type(context_.compute, [&]<class T>(T) {
      kernels::add_bias(elements<T>(qkv), qkv_.bias()->values(), qkv.size(0), qkv.size(1));
    });
  }
  if (qk_norm_) co_await qk_norm_->forward(qkv, saved);
  turn(qkv, seq, first_position, false);
  co_return qkv;
}

void Attention::attend(const MicroBatch& batch, Saved& saved) const {
  const TimedSpan span = context_.timed("attention");
  const std::int64_t rows = batch.rows(), seq = batch.seq;
  saved.output = empty_tensor({rows, heads_ * head_dim_}, context_.compute);
  saved.log_sum_exp = empty_tensor({rows / seq, heads_, seq}, DType::kF32);
  with_type(context_.compute, [&]<class T>(T) {
    const auto in = kernels::fused_qkv(elements<T>(saved.qkv), seq, heads_, kv_heads_, head_dim_);
    kernels::attention_forward<T>(
        shape(rows, seq), in.q.as_const(), in.k.as_const(), in.v.as_const(),
        kernels::dense_heads(elements<T>(saved.output), seq, heads_, head_dim_),
        elements<float>(saved.log_sum_exp), dropout(batch));
  });
}

Async<void> Attention::restore(const at::Tensor& x, const MicroBatch& batch, Saved& saved) const {
  if (!saved.qkv.defined()) {
    saved.qkv = co_await project_qkv(x, batch.seq, 0, saved.qk_norm);
  }
  if (!saved.output.defined()) attend(batch, saved);
}

Async<at::Tensor> Attention::forward(const at::Tensor& x, const MicroBatch& batch,
                                     Saved& saved) const {
  co_await restore(x, batch, saved);
  co_return co_await project(saved);
}

Async<at::Tensor> Attention::backward(const at::Tensor& x, const at::Tensor& d_output,
                                      const MicroBatch& batch, const Saved& saved) {
  const std::int64_t rows = batch.rows(), seq = batch.seq;
  const at::Tensor d_heads = co_await projection_.backward(saved.output, d_output);
  const at::Tensor d_qkv = empty_tensor(saved.qkv.sizes(), context_.compute);
  {
    const TimedSpan span = context_.timed("attention backward");
    with_type(context_.compute, [&]<class T>(T) {
      auto heads = [&](const at::Tensor& t) {
        return kernels::dense_heads(elements<T>(t), seq, heads_, head_dim_).as_const();
      };
      const auto in = kernels::fused_qkv(elements<T>(saved.qkv), seq, heads_, kv_heads_, head_dim_);
      const auto out = kernels::fused_qkv(elements<T>(d_qkv), seq, heads_, kv_heads_, head_dim_);
      kernels::attention_backward<T>(
          shape(rows, seq), in.q.as_const(), in.k.as_const(), in.v.as_const(), heads(saved.output),
          heads(d_heads), elements<float>(saved.log_sum_exp), out.q, out.k, out.v, dropout(batch));
    });
  }
  turn(d_qkv, seq, 0, true);
  if (qk_norm_) co_await qk_norm_->backward(d_qkv, saved.qk_norm);
  if (qkv_.bias()) {
    with_type(context_.compute, [&]<class T>(T) {
      kernels::column_sums(elements<T>(d_qkv), rows, d_qkv.size(1), qkv_.bias()->gradient());
    });
  }
  co_return co_await qkv_.backward(x, d_qkv);
}

KvCache Attention::make_cache(std::int64_t sequences, std::int64_t capacity) const {
  const std::vector<std::int64_t> sizes{sequences, kv_heads_, capacity, head_dim_};
  return {empty_tensor(sizes, context_.compute), empty_tensor(sizes, context_.compute), 0};
}

Async<at::Tensor> Attention::decode(const at::Tensor& x, const MicroBatch& batch,
                                    KvCache& cache) const {
  const std::int64_t rows = batch.rows(), seq = batch.seq, sequences = rows / seq;
  QkNorm4D::Saved unused;
  const at::Tensor qkv = co_await project_qkv(x, seq, cache.length, unused);
  const at::Tensor output = empty_tensor({rows, heads_ * head_dim_}, context_.compute);
  const std::int64_t capacity = cache.keys.size(2);
  FF_CHECK(cache.length + seq <= capacity, "{} positions in a cache of {}", cache.length + seq,
           capacity);
  const at::Tensor parts =
      qkv.view({sequences, seq, heads_ + 2 * kv_heads_, head_dim_}).transpose(1, 2);
  cache.keys.narrow(2, cache.length, seq).copy_(parts.narrow(1, heads_, kv_heads_));
  cache.values.narrow(2, cache.length, seq).copy_(parts.narrow(1, heads_ + kv_heads_, kv_heads_));
  cache.length += seq;
  const kernels::AttentionShape shape{sequences, seq, cache.length, heads_, kv_heads_, head_dim_};
  with_type(context_.compute, [&]<class T>(T) {
    const auto in = kernels::fused_qkv(elements<T>(qkv), seq, heads_, kv_heads_, head_dim_);
    auto cached = [&](const at::Tensor& t) {
      return kernels::cache_heads(elements<T>(t), kv_heads_, capacity, head_dim_).as_const();
    };
    kernels::attention_forward<T>(shape, in.q.as_const(), cached(cache.keys), cached(cache.values),
                                  kernels::dense_heads(elements<T>(output), seq, heads_, head_dim_),
                                  nullptr, {});
  });
  co_return co_await projection_.forward(output);
}

}  // namespace fourfold
