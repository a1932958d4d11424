#pragma once

#include <cstdint>

#include "spec/model_spec.h"

namespace fourfold {

/// Parameters of a model, exactly, by part.
struct ParameterCount {
  std::int64_t embedding = 0;  ///< Tokens; the head too where it is tied.
  std::int64_t positions = 0;  ///< Learned ones.
  std::int64_t layers = 0;     ///< All blocks, with their norms and biases.
  std::int64_t final_norm = 0;
  std::int64_t head = 0;     ///< 0 where it is tied.
  std::int64_t experts = 0;  ///< Part of layers: all that tokens are routed to, not the shared.
  std::int64_t idle_experts = 0;  ///< Part of experts: those that one token does not take.

  std::int64_t total() const { return embedding + positions + layers + final_norm + head; }
  /// What one token uses: of each layer's experts, top_k.
  std::int64_t active() const { return total() - idle_experts; }
};

ParameterCount count_parameters(const ModelSpec& model);

/// The papers' 12·L·H²: weights of the blocks of a GPT without biases and norms.
double twelve_lh2(const ModelSpec& model);

/// Floating-point operations of forward and backward for one token of a sequence of `seq_len`,
/// without recompute: 6 for each weight of a product (the head included, the embedding not; of a
/// layer's experts top_k, and the router) and attention's two products at half, as it is causal.
double model_flops_per_token(const ModelSpec& model, std::int64_t seq_len);

/// Hardware operations of a step of `batch` sequences as the 4D papers count them, with full
/// recompute: 96·B·S·L·H²·(1 + S/(6H) + V/(16·L·H)) (Narayanan et al. 2021, equation 3). It is made
/// for GPT (MLP of 4·hidden) with attention not halved.
double paper_flops_per_step(const ModelSpec& model, std::int64_t batch, std::int64_t seq_len);

}  // namespace fourfold
