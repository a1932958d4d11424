#pragma once

#include <cstdint>

/// The router of a mixture of experts, on f32 [rows, experts], a row being a token. Row by row in
/// plain C++ with sums and exponentials in double, so that the choice of experts depends neither on
/// the CPU's vectors nor on threads.
namespace fourfold::kernels {

/// scores = sigmoid(logits), each on its own, or softmax(logits) over the experts.
void router_scores(const float* logits, std::int64_t rows, std::int64_t experts, bool sigmoid,
                   float* scores);

/// chosen[rows, top_k] = the experts of the greatest scores + bias, best first; the lower number
/// where two are equal. `bias`[experts] (of loss-free balance, Wang et al. 2024) is added for the
/// choice alone and may be null. margin[rows] = how far choice top_k - 1 lies above the next best,
/// infinity where there is none; may be null. NaNs are never chosen twice.
void choose_experts(const float* scores, const float* bias, std::int64_t rows, std::int64_t experts,
                    int top_k, std::int32_t* chosen, float* margin);

/// weights[rows, top_k] = the scores of the chosen experts, divided by their sum if `renormalise`.
void combine_weights(const float* scores, const std::int32_t* chosen, std::int64_t rows,
                     std::int64_t experts, int top_k, bool renormalise, float* weights);

/// What router_backward needs: the router's settings and what it saw, and the gradients of its
/// three uses.
struct RouterGradients {
  bool sigmoid = false, renormalise = false;
  int top_k = 1;
  const float* scores = nullptr;         ///< [rows, experts], of router_scores().
  const std::int32_t* chosen = nullptr;  ///< [rows, top_k].
  const float* d_weights = nullptr;      ///< [rows, top_k], of combine_weights().
  /// [rows, experts], of the probabilities: the scores of a softmax, scores / Σ scores of a sigmoid
  /// (which the auxiliary loss of balance is made of). May be null.
  const float* d_probabilities = nullptr;
  /// The loss has z_coefficient·Σ_rows log²(Σ exp(logit)) (z-loss, Zoph et al. 2022).
  float z_coefficient = 0;
  const float* logits = nullptr;  ///< [rows, experts]; may be null where z_coefficient is 0.
};

/// Writes d_logits[rows, experts].
void router_backward(const RouterGradients& in, std::int64_t rows, std::int64_t experts,
                     float* d_logits);

/// Σ_rows log²(Σ exp(logit)), added in the order of rows.
double z_loss_sum(const float* logits, std::int64_t rows, std::int64_t experts);

/// Σ_rows Σ f·p in the order of rows, p being the probabilities and f [scopes, experts] a share of
/// each expert that is the same for `rows_per_scope` rows: what the auxiliary loss is made of.
double balance_sum(const float* scores, const float* share, std::int64_t rows, std::int64_t experts,
                   std::int64_t rows_per_scope, bool sigmoid);

/// Σ_rows -Σ p·ln p in the order of rows, p being the probabilities that RouterGradients speaks of.
double entropy_sum(const float* scores, std::int64_t rows, std::int64_t experts, bool sigmoid);

}  // namespace fourfold::kernels
