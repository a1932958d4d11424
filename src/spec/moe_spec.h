#pragma once

#include <cstdint>

namespace fourfold {

enum class RouterScore { kSoftmax, kSigmoid };
/// How experts are kept evenly used.
enum class Balance {
  kNone,
  kAuxLoss,   ///< A loss that grows with uneven use (Switch Transformer, arXiv 2101.03961, eq. 4).
  kLossFree,  ///< A bias of each expert's score that counts for the choice alone (arXiv
              ///< 2408.15664).
  kForced,    ///< Experts in turn, whatever the scores: for measuring speed, not for training.
};
/// Over which tokens the balance is taken, and an expert's capacity.
enum class BalanceScope {
  kSequence,   ///< Each sequence by itself: the same on every grid.
  kMicrostep,  ///< All samples that the ranks pass through the model at a time.
  kStep,       ///< The counts of the step before.
};
/// Which tokens an expert beyond its capacity turns away.
enum class DropOrder {
  kPosition,  ///< The last ones, by their place in the step's samples.
  kScore,     ///< Those with the smallest score.
};

/// Experts in place of a transformer's MLPs.
struct MoeSpec {
  int experts = 0;             ///< Of a layer; 0: all layers are dense.
  int top_k = 2;               ///< Experts of a token.
  std::int64_t ffn = 0;        ///< Width of an expert; model.ffn unless given.
  int every = 1;               ///< Layer i (from 0) has experts where (i + 1) mod every = 0…
  int first_dense = 0;         ///< …and i ≥ first_dense.
  int shared_experts = 0;      ///< Of width ffn each, side by side, that every token takes.
  bool shared_gate = false;    ///< Their output is multiplied by a sigmoid of the token.
  double capacity_factor = 0;  ///< An expert takes ceil(factor·tokens·top_k/experts); 0: all.
  DropOrder drop_order = DropOrder::kPosition;
  RouterScore score = RouterScore::kSoftmax;
  bool renormalise = true;  ///< A token's weights sum to 1.
  Balance balance = Balance::kAuxLoss;
  BalanceScope balance_scope = BalanceScope::kSequence;
  double aux_coef = 0.01;   ///< Of the auxiliary loss.
  double z_coef = 0;        ///< Of the router's z-loss (ST-MoE, arXiv 2202.08906, eq. 5).
  double bias_rate = 1e-3;  ///< Of the loss-free bias, a step.
  double jitter = 0;        ///< The router's input is multiplied by 1 ± jitter in training.

  /// Whether block `layer`, from 0, has experts.
  bool in_layer(int layer) const {
    return experts > 0 && layer >= first_dense && (layer + 1) % every == 0;
  }
  bool operator==(const MoeSpec&) const = default;
};

}  // namespace fourfold
