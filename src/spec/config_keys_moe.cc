#include "spec/config_builder.h"

namespace fourfold {
namespace {

// Largest numbers that are read: beyond any model.
constexpr double kMaxExperts = 1e5;
constexpr double kMaxLayers = 1e4;
constexpr double kMaxFfn = 1e8;

std::vector<ConfigKey> expert_keys() {
  return {
      key("model.moe.experts", FF_FIELD(model.moe.experts),
          {.doc = "experts of a layer, in place of its MLP; 0: all layers are dense",
           .min = 0,
           .max = kMaxExperts}),
      key("model.moe.top_k", FF_FIELD(model.moe.top_k),
          {.doc = "experts that each token takes", .min = 1, .max = kMaxExperts}),
      key("model.moe.ffn", FF_FIELD(model.moe.ffn),
          {.doc = "width of an expert",
           .min = 0,
           .max = kMaxFfn,
           .default_text = "model.ffn where there are experts"}),
      key("model.moe.every", FF_FIELD(model.moe.every),
          {.doc = "block i (from 0) has experts where (i + 1) mod every = 0",
           .min = 1,
           .max = kMaxLayers}),
      key("model.moe.first_dense", FF_FIELD(model.moe.first_dense),
          {.doc = "blocks at the start that have none", .min = 0, .max = kMaxLayers}),
      key("model.moe.shared_experts", FF_FIELD(model.moe.shared_experts),
          {.doc = "experts, side by side, that every token takes beside its top_k",
           .min = 0,
           .max = kMaxExperts}),
      key("model.moe.shared_gate", FF_FIELD(model.moe.shared_gate),
          {.doc = "multiply the output of the shared experts by a sigmoid of the token"}),
      key("model.moe.capacity_factor", FF_FIELD(model.moe.capacity_factor),
          {.doc = "an expert takes at most ceil(factor·tokens·top_k/experts) of the tokens of "
                  "balance_scope; the others pass by on the residual stream; 0: all, dropless",
           .min = 0,
           .max = kMaxExperts}),
      key("model.moe.drop_order", FF_FIELD(model.moe.drop_order),
          {.doc = "which tokens an expert beyond its capacity turns away; position: the last ones; "
                  "score: those with the smallest score"}),
  };
}

std::vector<ConfigKey> routing_keys() {
  return {
      key("model.moe.score", FF_FIELD(model.moe.score),
          {.doc = "what the router makes of its products"}),
      key("model.moe.renormalise", FF_FIELD(model.moe.renormalise),
          {.doc = "the weights of a token's experts sum to 1"}),
      key("model.moe.balance", FF_FIELD(model.moe.balance),
          {.doc = "how experts are kept evenly used; aux_loss: a loss that grows with uneven use; "
                  "loss_free: a bias of each expert that counts for the choice alone; forced: "
                  "experts in turn, for measuring speed, not for training"}),
      key("model.moe.balance_scope", FF_FIELD(model.moe.balance_scope),
          {.doc = "tokens over which balance and capacity are taken; sequence: each sequence by "
                  "itself, the same on every grid; microstep: all samples that the ranks pass "
                  "through the model at a time; step: the counts of the step before"}),
      key("model.moe.aux_coef", FF_FIELD(model.moe.aux_coef),
          {.doc = "weight of the auxiliary loss", .min = 0}),
      key("model.moe.z_coef", FF_FIELD(model.moe.z_coef),
          {.doc = "weight of the router's z-loss; 0: none", .min = 0}),
      key("model.moe.bias_rate", FF_FIELD(model.moe.bias_rate),
          {.doc = "change of the loss-free bias in a step", .min = 0, .max = 1}),
      key("model.moe.jitter", FF_FIELD(model.moe.jitter),
          {.doc = "in training the router's input is multiplied by a random number within 1 ± "
                  "jitter; 0: none",
           .min = 0,
           .max = 0.999}),
  };
}

}  // namespace

std::vector<ConfigKey> moe_keys() {
  std::vector<ConfigKey> keys = expert_keys();
  for (const ConfigKey& key : routing_keys()) keys.push_back(key);
  return keys;
}

}  // namespace fourfold
