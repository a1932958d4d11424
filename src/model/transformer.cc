#include "model/transformer.h"

#include "base/check.h"
#include "device/tensors.h"
#include "model/dropout_places.h"
#include "parallel/overlap_scheduler.h"

namespace fourfold {
Transformer::Transformer(const ParallelContext& context, const ModelSpec& spec,
                         const TransformerOptions& options)
    : Transformer(context, spec, options,
                  model_layers(spec, context.shape().shape(), options.head_layout)) {}

Transformer::Transformer(const ParallelContext& context, const ModelSpec& spec,
                         const TransformerOptions& options, const ModelLayers& layers)
    : context_(context),
      spec_(spec),
      options_(options),
      embedding_(context, layers.embedding),
      final_norm_(context, layers.final_norm) {
  for (int i = 0; i < spec.layers; ++i) {
    blocks_.push_back(std::make_unique<Block>(context, spec, layers.blocks[i], i));
  }
  if (layers.head) {
    head_ = std::make_unique<WeightBlock>(context, std::vector<ParameterSpec>{*layers.head});
  }
  loss_ = std::make_unique<VocabLoss>(context, head_ ? *head_ : embedding_.table(),
                                      layers.head_layout, spec.tie_embeddings);
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

at::Tensor Transformer::embed(const MicroBatch& batch, std::int64_t first_position) const {
  const at::Tensor hidden = embedding_.forward(batch.tokens, batch.seq, first_position);
  const kernels::DropoutSpec dropout = hidden_dropout(
      context_, batch, static_cast<float>(spec_.dropout), spec_.hidden, embedding_dropout_place());
  if (dropout.p == 0) return hidden;
  with_type(context_.compute, [&]<class T>(T) {
    kernels::residual_dropout_forward<T>(elements<T>(hidden), nullptr, nullptr, elements<T>(hidden),
                                         hidden.size(0), hidden.size(1), dropout);
  });
  return hidden;
}

void Transformer::embed_backward(const MicroBatch& batch, const at::Tensor& d_hidden) {
  const kernels::DropoutSpec dropout = hidden_dropout(
      context_, batch, static_cast<float>(spec_.dropout), spec_.hidden, embedding_dropout_place());
  if (dropout.p > 0) {
    with_type(context_.compute, [&]<class T>(T) {
      kernels::residual_dropout_backward<T>(elements<T>(d_hidden), elements<T>(d_hidden), nullptr,
                                            d_hidden.size(0), d_hidden.size(1), dropout);
    });
  }
  embedding_.backward(batch.tokens, batch.seq, d_hidden);
}

double Transformer::forward_backward(const MicroBatch& batch, float scale,
                                     const std::function<void(const ParameterUnit&)>& passed) {
  auto pass = [&](const ParameterUnit& unit) {
    if (passed) passed(unit);
  };
  std::vector<Block::Saved> saved(blocks_.size());
  at::Tensor hidden = embed(batch, 0);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    enter(units_[i + 1]);
    hidden = blocks_[i]->forward(hidden, batch, saved[i]);
    if (recomputes(i)) saved[i].keep_input_only();
  }
  double loss = 0;
  at::Tensor gradient = head_forward_backward(hidden, batch, scale, loss);
  pass(units_.back());
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    if (recomputes(i)) {
      const at::Tensor input = saved[i].input;
      blocks_[i]->forward(input, batch, saved[i]);
    }
    gradient = blocks_[i]->backward(gradient, batch, saved[i]);
    saved[i] = {};
    pass(units_[i + 1]);
  }
  embed_backward(batch, gradient);
  pass(units_.front());
  return loss;
}

at::Tensor Transformer::head_forward_backward(const at::Tensor& hidden, const MicroBatch& batch,
                                              float scale, double& loss_sum) {
  const TimedSpan span = context_.timed("head and loss");
  enter(units_.back());
  Norm4D::Statistics statistics;
  const at::Tensor normed = final_norm_.forward(hidden, statistics);
  VocabLoss::Result loss = loss_->forward_backward(normed, batch.targets, scale);
  loss_sum = loss.loss_sum;
  return final_norm_.backward(loss.d_hidden, hidden, statistics, {});
}

double Transformer::forward(const MicroBatch& batch) const {
  at::Tensor hidden = embed(batch, 0);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    enter(units_[i + 1]);
    Block::Saved unsaved;
    hidden = blocks_[i]->forward(hidden, batch, unsaved);
  }
  enter(units_.back());
  Norm4D::Statistics unused;
  return loss_->forward(final_norm_.forward(hidden, unused), batch.targets);
}

at::Tensor Transformer::decode(const MicroBatch& batch, std::vector<KvCache>& caches) const {
  FF_CHECK(caches.size() == blocks_.size(), "{} caches", caches.size());
  at::Tensor hidden = embed(batch, caches.front().length);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    hidden = blocks_[i]->decode(hidden, batch, caches[i]);
  }
  const std::int64_t sequences = batch.rows() / batch.seq;
  const at::Tensor last =
      hidden.view({sequences, batch.seq, hidden.size(1)}).select(1, batch.seq - 1).contiguous();
  Norm4D::Statistics unused;
  return loss_->logits(final_norm_.forward(last, unused));
}

std::vector<KvCache> Transformer::make_caches(std::int64_t sequences, std::int64_t capacity) const {
  std::vector<KvCache> caches;
  for (const auto& block : blocks_) {
    caches.push_back(block->attention().make_cache(sequences, capacity));
  }
  return caches;
}

}  // namespace fourfold
