#include "model/transformer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "device/tensors.h"
#include "model/dropout_places.h"
#include "parallel/overlap_scheduler.h"

namespace fourfold {
Transformer::Transformer(const ParallelContext& context, const ModelSpec& spec,
                         const TransformerOptions& options)
    : Transformer(context, spec, options,
                  model_layers(spec, context.shape().shape(), options.head_layout,
                               options.moe.experts, options.sequence_parallel)) {}

Transformer::Transformer(const ParallelContext& context, const ModelSpec& spec,
                         const TransformerOptions& options, const ModelLayers& layers)
    : context_(context),
      spec_(spec),
      options_(options),
      stream_(context, layers.rows_over_x),
      embedding_(context, layers.embedding),
      final_norm_(context, layers.final_norm) {
  for (int i = 0; i < spec.layers; ++i) {
    blocks_.push_back(std::make_unique<Block>(context, spec, layers.blocks[i], i, options.moe,
                                              !options.sp_regather));
  }
  if (layers.head) {
    head_ = std::make_unique<WeightBlock>(context, std::vector<ParameterSpec>{*layers.head});
  }
  loss_ = std::make_unique<VocabLoss>(context, head_ ? *head_ : embedding_.table(),
                                      layers.head_layout, spec.tie_embeddings, stream_);
  collect_units();
  for (const ParameterUnit& unit : units_) unit.refresh_vectors();
}

void Transformer::collect_units() {
  ParameterUnit begin, end;
  begin.add(embedding_.table());
  if (embedding_.positions()) begin.add(*embedding_.positions());
  units_.push_back(std::move(begin));
  for (auto& block : blocks_) units_.push_back(block->unit());
  end.add(final_norm_.parameters());
  if (head_) end.add(*head_);
  units_.push_back(std::move(end));
  for (const ParameterUnit& unit : units_) {
    parameters_.insert(parameters_.end(), unit.parameters().begin(), unit.parameters().end());
  }
}

void Transformer::enter(const ParameterUnit& unit) const {
  if (context_.overlap) context_.overlap->settle(unit);
}

Async<at::Tensor> Transformer::embed(const MicroBatch& batch, std::int64_t first_position) const {
  const at::Tensor hidden = co_await embedding_.forward(batch.tokens, batch.seq, first_position);
  const kernels::DropoutSpec dropout =
      hidden_dropout(context_, stream_, batch, static_cast<float>(spec_.dropout), spec_.hidden,
                     embedding_dropout_place());
  if (dropout.p == 0) co_return hidden;
  with_type(context_.compute, [&]<class T>(T) {
    kernels::residual_dropout_forward<T>(elements<T>(hidden), nullptr, nullptr, elements<T>(hidden),
                                         hidden.size(0), hidden.size(1), dropout);
  });
  co_return hidden;
}

Async<void> Transformer::embed_backward(const MicroBatch& batch, const at::Tensor& d_hidden) {
  const kernels::DropoutSpec dropout =
      hidden_dropout(context_, stream_, batch, static_cast<float>(spec_.dropout), spec_.hidden,
                     embedding_dropout_place());
  if (dropout.p > 0) {
    with_type(context_.compute, [&]<class T>(T) {
      kernels::residual_dropout_backward<T>(elements<T>(d_hidden), elements<T>(d_hidden), nullptr,
                                            d_hidden.size(0), d_hidden.size(1), dropout);
    });
  }
  co_await embedding_.backward(batch.tokens, batch.seq, d_hidden);
}

int Transformer::slices_of(const MicroBatch& batch) const {
  const auto most = static_cast<int>(batch.samples.size());
  return context_.overlap ? std::min(context_.overlap->options().slices, most) : 1;
}

double Transformer::forward_backward(const MicroBatch& batch, float scale, const Passed& passed) {
  const int slices = slices_of(batch);
  std::vector<MicroBatch> parts;
  for (int i = 0; i < slices; ++i) {
    parts.push_back(batch.slice(slices, i));
    parts.back().loss_scale = scale;
  }
  std::vector<Async<double>> passes;
  for (const MicroBatch& part : parts) {
    // They keep step with each other: the last one is past a unit when all are.
    passes.push_back(pass(part, scale, &part == &parts.back() ? passed : Passed()));
  }
  const std::vector<double> losses = run_in_turn(std::move(passes));
  return std::accumulate(losses.begin(), losses.end(), 0.0);
}

Async<double> Transformer::pass(const MicroBatch& batch, float scale, Passed passed) {
  auto past = [&](const ParameterUnit& unit) {
    if (passed) passed(unit);
  };
  std::vector<Block::Saved> saved(blocks_.size());
  at::Tensor hidden = co_await embed(batch, 0);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    enter(units_[i + 1]);
    hidden = co_await blocks_[i]->forward(hidden, batch, saved[i]);
    saved[i].keep(kept(i));
  }
  double loss = 0;
  at::Tensor gradient = co_await head_forward_backward(hidden, batch, scale, loss);
  past(units_.back());
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    co_await blocks_[i]->restore(batch, saved[i]);
    gradient = co_await blocks_[i]->backward(gradient, batch, saved[i]);
    saved[i] = {};
    past(units_[i + 1]);
  }
  co_await embed_backward(batch, gradient);
  past(units_.front());
  co_return loss;
}

Async<at::Tensor> Transformer::head_forward_backward(const at::Tensor& hidden,
                                                     const MicroBatch& batch, float scale,
                                                     double& loss_sum) {
  enter(units_.back());
  Norm4D::Statistics statistics;
  const at::Tensor normed = co_await final_norm_.forward(hidden, statistics);
  const VocabLoss::Result loss = co_await loss_->forward_backward(normed, batch.targets, scale);
  loss_sum = loss.loss_sum;
  co_return co_await final_norm_.backward(loss.d_hidden, hidden, statistics, {});
}

double Transformer::forward(const MicroBatch& batch) const {
  return run_to_end(pass_forward(batch));
}

Async<double> Transformer::pass_forward(const MicroBatch& batch) const {
  at::Tensor hidden = co_await embed(batch, 0);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    enter(units_[i + 1]);
    Block::Saved unsaved;
    hidden = co_await blocks_[i]->forward(hidden, batch, unsaved);
  }
  enter(units_.back());
  Norm4D::Statistics unused;
  const at::Tensor normed = co_await final_norm_.forward(hidden, unused);
  co_return co_await loss_->forward(normed, batch.targets);
}

at::Tensor Transformer::decode(const MicroBatch& batch, std::vector<KvCache>& caches) const {
  return run_to_end(pass_decode(batch, caches));
}

Async<at::Tensor> Transformer::pass_decode(const MicroBatch& batch,
                                           std::vector<KvCache>& caches) const {
  FF_CHECK(caches.size() == blocks_.size(), "{} caches", caches.size());
  FF_CHECK(!stream_.cut(), "a cut stream of {} x", context_.size(Axis::kX));
  at::Tensor hidden = co_await embed(batch, caches.front().length);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    hidden = co_await blocks_[i]->decode(hidden, batch, caches[i]);
  }
  const std::int64_t sequences = batch.rows() / batch.seq;
  const at::Tensor last =
      hidden.view({sequences, batch.seq, hidden.size(1)}).select(1, batch.seq - 1).contiguous();
  Norm4D::Statistics unused;
  const at::Tensor normed = co_await final_norm_.forward(last, unused);
  co_return loss_->logits(normed);
}

std::vector<KvCache> Transformer::make_caches(std::int64_t sequences, std::int64_t capacity) const {
  std::vector<KvCache> caches;
  for (const auto& block : blocks_) {
    caches.push_back(block->attention().make_cache(sequences, capacity));
  }
  return caches;
}

}  // namespace fourfold
