#include "model/transformer.h"

#include "base/check.h"
#include "device/tensors.h"
#include "model/dropout_places.h"
#include "model/norm_spec.h"

namespace fourfold {
namespace {

EmbeddingSpec embedding_spec(const ModelSpec& spec) {
  EmbeddingSpec e;
  e.name = "model.embed_tokens";
  if (spec.position == Position::kLearned) e.position_name = "model.embed_positions";
  e.vocab = spec.vocab;
  e.hidden = spec.hidden;
  e.positions = spec.seq_len;
  e.init_std = static_cast<float>(spec.init_std);
  return e;
}

ParameterSpec head_spec(const ModelSpec& spec, HeadLayout layout) {
  ParameterSpec p;
  p.name = "lm_head.weight";
  p.layout = VocabLoss::head_weight_layout(spec.vocab, spec.hidden, layout);
  p.init = {Init::Kind::kNormal, static_cast<float>(spec.init_std)};
  return p;
}

}  // namespace

Transformer::Transformer(const ParallelContext& context, const ModelSpec& spec,
                         const TransformerOptions& options)
    : context_(context),
      spec_(spec),
      recompute_(options.recompute),
      embedding_(context, embedding_spec(spec)),
      final_norm_(context, norm_spec(spec, "model.norm")) {
  for (int i = 0; i < spec.layers; ++i) {
    blocks_.push_back(std::make_unique<Block>(context, spec, i));
  }
  if (!spec.tie_embeddings) {
    head_ = std::make_unique<WeightBlock>(
        context, std::vector<ParameterSpec>{head_spec(spec, options.head_layout)});
  }
  loss_ = std::make_unique<VocabLoss>(context, head_ ? *head_ : embedding_.table(),
                                      options.head_layout, spec.tie_embeddings);
  collect_parameters();
  refresh_vectors();
}

void Transformer::collect_parameters() {
  auto add = [&](ParameterGroup& group) {
    for (Parameter& p : group.parameters()) parameters_.push_back(&p);
  };
  auto add_vectors = [&](VectorBlock* vectors) {
    if (!vectors) return;
    add(*vectors);
    vectors_.push_back(vectors);
  };
  auto add_linear = [&](Linear4D& linear) {
    add(linear.weights());
    add_vectors(linear.bias());
  };
  add(embedding_.table());
  if (embedding_.positions()) add(*embedding_.positions());
  for (auto& block : blocks_) {
    add_vectors(&block->attention_norm().parameters());
    add_linear(block->attention().qkv());
    add_linear(block->attention().projection());
    add_vectors(&block->mlp_norm().parameters());
    add_linear(block->mlp().up());
    add_linear(block->mlp().down());
  }
  add_vectors(&final_norm_.parameters());
  if (head_) add(*head_);
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

double Transformer::forward_backward(const MicroBatch& batch, float scale) {
  std::vector<Block::Saved> saved(blocks_.size());
  at::Tensor hidden = embed(batch, 0);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    hidden = blocks_[i]->forward(hidden, batch, saved[i]);
    if (recompute_ == RecomputePlan::kBlocks) saved[i].keep_input_only();
  }
  Norm4D::Statistics statistics;
  const at::Tensor normed = final_norm_.forward(hidden, statistics);
  VocabLoss::Result loss = loss_->forward_backward(normed, batch.targets, scale);
  at::Tensor gradient = final_norm_.backward(loss.d_hidden, hidden, statistics, {});
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    if (recompute_ == RecomputePlan::kBlocks) {
      const at::Tensor input = saved[i].input;
      blocks_[i]->forward(input, batch, saved[i]);
    }
    gradient = blocks_[i]->backward(gradient, batch, saved[i]);
    saved[i] = {};
  }
  embed_backward(batch, gradient);
  return loss.loss_sum;
}

double Transformer::forward(const MicroBatch& batch) const {
  at::Tensor hidden = embed(batch, 0);
  for (const auto& block : blocks_) {
    Block::Saved unsaved;
    hidden = block->forward(hidden, batch, unsaved);
  }
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

void Transformer::zero_gradients() {
  for (Parameter* p : parameters_) p->gradient.zero_();
}

void Transformer::finish_gradients() {
  for (VectorBlock* v : vectors_) v->finish_gradient();
}

void Transformer::refresh_vectors() {
  for (VectorBlock* v : vectors_) v->refresh();
}

}  // namespace fourfold
