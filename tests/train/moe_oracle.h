#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "spec/model_spec.h"

// A mixture of experts written with LibTorch's modules: each expert on the tokens that a mask
// picks.
namespace fourfold::testing {

class OracleMlp : public torch::nn::Module {
 public:
  OracleMlp(const ModelSpec& s, std::int64_t width) : gated_(s.gated()) {
    auto linear = [&](const char* part, std::int64_t in, std::int64_t out) {
      return register_module(part,
                             torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(s.bias)));
    };
    if (gated_) gate_ = linear("gate_proj", s.hidden, width);
    up_ = linear("up_proj", s.hidden, width);
    down_ = linear("down_proj", width, s.hidden);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return down_(gated_ ? torch::silu(gate_(x)) * up_(x) : torch::gelu(up_(x), "tanh"));
  }

 private:
  bool gated_;
  torch::nn::Linear gate_{nullptr}, up_{nullptr}, down_{nullptr};
};

class OracleMoe : public torch::nn::Module {
 public:
  explicit OracleMoe(const ModelSpec& s) : spec_(s.moe) {
    auto no_bias = [&](std::int64_t out) {
      return torch::nn::Linear(torch::nn::LinearOptions(s.hidden, out).bias(false));
    };
    router_ = register_module("gate", no_bias(spec_.experts));
    for (int e = 0; e < spec_.experts; ++e) {
      experts_.push_back(register_module("experts_" + std::to_string(e),
                                         std::make_shared<OracleMlp>(s, spec_.ffn)));
    }
    if (spec_.shared_experts == 0) return;
    shared_ = register_module("shared_expert",
                              std::make_shared<OracleMlp>(s, spec_.ffn * spec_.shared_experts));
    if (spec_.shared_gate) shared_gate_ = register_module("shared_expert_gate", no_bias(1));
  }

  /// x [batch, seq, hidden]; adds the router's losses to `losses`, each sequence balanced by
  /// itself.
  torch::Tensor forward(const torch::Tensor& x, torch::Tensor& losses) {
    const auto logits = router_(x);
    const bool sigmoid = spec_.score == RouterScore::kSigmoid;
    const auto scores = sigmoid ? torch::sigmoid(logits) : torch::softmax(logits, -1);
    const auto chosen = std::get<1>(torch::topk(scores, spec_.top_k, -1));
    auto weights = scores.gather(-1, chosen);
    if (spec_.renormalise) weights = weights / weights.sum(-1, true);
    const auto of_expert = torch::zeros_like(scores).scatter(-1, chosen, weights);
    const auto taken = torch::zeros_like(scores).scatter(-1, chosen, 1.0);
    if (spec_.balance == Balance::kAuxLoss) {
      const auto p = sigmoid ? scores / scores.sum(-1, true) : scores;
      const auto share = taken.sum(1) / (x.size(1) * spec_.top_k);
      losses = losses + spec_.aux_coef * spec_.experts * (share * p.mean(1)).sum(-1).mean();
    }
    losses = losses + spec_.z_coef * torch::logsumexp(logits, {-1}).square().mean();
    auto out = torch::zeros_like(x);
    for (int e = 0; e < spec_.experts; ++e) {
      out = out + experts_[static_cast<std::size_t>(e)]->forward(x) *
                      of_expert.select(-1, e).unsqueeze(-1);
    }
    if (!shared_) return out;
    const auto shared = shared_->forward(x);
    return out + (spec_.shared_gate ? shared * torch::sigmoid(shared_gate_(x)) : shared);
  }

 private:
  MoeSpec spec_;
  torch::nn::Linear router_{nullptr}, shared_gate_{nullptr};
  std::vector<std::shared_ptr<OracleMlp>> experts_;
  std::shared_ptr<OracleMlp> shared_;
};

}  // namespace fourfold::testing
