// Loss and gradients of one rank against the same model written with LibTorch's modules and
// differentiated by its autograd.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>

#include "tests/train/moe_oracle.h"
#include "tests/train/test_models.h"
#include "train/verify_reference.h"

namespace fourfold {
namespace {

namespace F = torch::nn::functional;

/// Rotary embedding in Hugging Face's half-split layout on [batch, heads, seq, head_dim].
torch::Tensor rotate(const torch::Tensor& x, double theta) {
  const auto d = x.size(3), seq = x.size(2);
  const auto frequencies = torch::pow(theta, -torch::arange(0, d, 2, torch::kDouble) / d);
  const auto angles = torch::outer(torch::arange(seq, torch::kDouble), frequencies);
  const auto cosines = torch::cat({angles.cos(), angles.cos()}, 1).to(torch::kFloat);
  const auto sines = torch::cat({angles.sin(), angles.sin()}, 1).to(torch::kFloat);
  const auto halves = x.chunk(2, 3);
  return x * cosines + torch::cat({-halves[1], halves[0]}, 3) * sines;
}

class OracleBlock : public torch::nn::Module {
 public:
  OracleBlock(const ModelSpec& s, int index) : spec_(s) {
    auto linear = [&](const std::string& part, std::int64_t in, std::int64_t out) {
      return register_module(part,
                             torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(s.bias)));
    };
    q_ = linear("q_proj", s.hidden, s.query_width());
    k_ = linear("k_proj", s.hidden, s.kv_width());
    v_ = linear("v_proj", s.hidden, s.kv_width());
    o_ = linear("o_proj", s.query_width(), s.hidden);
    const bool whole = s.qk_norm == QkNorm::kWhole;
    if (s.qk_norm != QkNorm::kNone) {
      q_gain_ =
          register_parameter("q_norm_weight", torch::ones(whole ? s.query_width() : s.head_dim));
      k_gain_ = register_parameter("k_norm_weight", torch::ones(whole ? s.kv_width() : s.head_dim));
    }
    if (s.moe.in_layer(index)) {
      moe_ = register_module("mlp", std::make_shared<testing::OracleMoe>(s));
    } else {
      mlp_ = register_module("mlp", std::make_shared<testing::OracleMlp>(s, s.ffn));
    }
    gain1_ = register_parameter("input_layernorm_weight", torch::ones(s.hidden));
    gain2_ = register_parameter("post_attention_layernorm_weight", torch::ones(s.hidden));
    if (s.norm == Norm::kLayerNorm) {
      bias1_ = register_parameter("input_layernorm_bias", torch::zeros(s.hidden));
      bias2_ = register_parameter("post_attention_layernorm_bias", torch::zeros(s.hidden));
    }
  }

  /// Adds the losses of a router to `losses`.
  torch::Tensor forward(const torch::Tensor& x, torch::Tensor& losses) {
    const auto h = x + attention(norm(x, gain1_, bias1_, spec_));
    const auto n = norm(h, gain2_, bias2_, spec_);
    return h + (moe_ ? moe_->forward(n, losses) : mlp_->forward(n));
  }

  static torch::Tensor norm(const torch::Tensor& x, const torch::Tensor& gain,
                            const torch::Tensor& bias, const ModelSpec& s) {
    if (s.norm == Norm::kLayerNorm) {
      return torch::layer_norm(x, {s.hidden}, gain, bias, s.norm_eps);
    }
    return rms_norm(x, gain, s);
  }

  static torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& gain,
                                const ModelSpec& s) {
    return x * torch::rsqrt(x.square().mean(-1, true) + s.norm_eps) * gain;
  }

 private:
  torch::Tensor attention(const torch::Tensor& x) {
    const auto batch = x.size(0), seq = x.size(1);
    auto split = [&](const torch::Tensor& t, int heads) {
      return t.view({batch, seq, heads, spec_.head_dim}).transpose(1, 2);
    };
    // Before or after they are split into heads.
    auto normed = [&](torch::Tensor t, const torch::Tensor& gain, int heads) {
      if (spec_.qk_norm == QkNorm::kWhole) t = rms_norm(t, gain, spec_);
      t = split(t, heads);
      return spec_.qk_norm == QkNorm::kHead ? rms_norm(t, gain, spec_) : t;
    };
    auto q = normed(q_(x), q_gain_, spec_.heads), k = normed(k_(x), k_gain_, spec_.kv_heads);
    auto v = split(v_(x), spec_.kv_heads);
    if (spec_.position == Position::kRotary) {
      q = rotate(q, spec_.rope_theta);
      k = rotate(k, spec_.rope_theta);
    }
    const int group = spec_.heads / spec_.kv_heads;
    const auto out = torch::scaled_dot_product_attention(
        q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), {}, 0, true);
    return o_(out.transpose(1, 2).reshape({batch, seq, spec_.query_width()}));
  }

  ModelSpec spec_;
  torch::nn::Linear q_{nullptr}, k_{nullptr}, v_{nullptr}, o_{nullptr};
  std::shared_ptr<testing::OracleMlp> mlp_;
  std::shared_ptr<testing::OracleMoe> moe_;
  torch::Tensor gain1_, bias1_, gain2_, bias2_, q_gain_, k_gain_;
};

class OracleModel : public torch::nn::Module {
 public:
  explicit OracleModel(const ModelSpec& s) : spec_(s) {
    tokens_ = register_module("embed_tokens", torch::nn::Embedding(s.vocab, s.hidden));
    if (s.position == Position::kLearned) {
      positions_ = register_module("embed_positions", torch::nn::Embedding(s.seq_len, s.hidden));
    }
    for (int i = 0; i < s.layers; ++i) {
      blocks_.push_back(
          register_module("layers_" + std::to_string(i), std::make_shared<OracleBlock>(s, i)));
    }
    gain_ = register_parameter("norm_weight", torch::ones(s.hidden));
    if (s.norm == Norm::kLayerNorm) bias_ = register_parameter("norm_bias", torch::zeros(s.hidden));
    if (!s.tie_embeddings) {
      head_ = register_module(
          "lm_head", torch::nn::Linear(torch::nn::LinearOptions(s.hidden, s.vocab).bias(false)));
    }
  }

  /// The cross-entropy; what routers add to it in `losses`.
  torch::Tensor loss(const torch::Tensor& tokens, const torch::Tensor& targets,
                     torch::Tensor& losses) {
    losses = torch::zeros({});
    auto h = tokens_(tokens);
    if (positions_) h = h + positions_(torch::arange(tokens.size(1)));
    for (auto& block : blocks_) h = block->forward(h, losses);
    h = OracleBlock::norm(h, gain_, bias_, spec_);
    const auto logits = head_ ? head_(h) : torch::linear(h, tokens_->weight);
    return torch::cross_entropy_loss(logits.view({-1, spec_.vocab}), targets.view(-1));
  }

  /// Parameters by the names that fourfold gives them.
  std::map<std::string, torch::Tensor> by_name() {
    std::map<std::string, torch::Tensor> named;
    for (const auto& item : named_parameters()) named[translate(item.key())] = item.value();
    return named;
  }

 private:
  static std::string translate(std::string key) {
    auto replace = [&](const std::string& from, const std::string& to) {
      const auto at = key.find(from);
      if (at != std::string::npos) key.replace(at, from.size(), to);
    };
    replace("layers_", "layers.");
    replace("layernorm_", "layernorm.");
    replace("norm_weight", "norm.weight");
    replace("norm_bias", "norm.bias");
    for (const char* part : {"q", "k", "v", "o"}) {
      replace(std::string(".") + part + "_proj", std::string(".self_attn.") + part + "_proj");
    }
    for (const char* part : {"q", "k"}) {
      replace(std::string(".") + part + "_norm", std::string(".self_attn.") + part + "_norm");
    }
    replace("experts_", "experts.");
    return key.starts_with("lm_head") ? key : "model." + key;
  }

  ModelSpec spec_;
  torch::nn::Embedding tokens_{nullptr}, positions_{nullptr};
  std::vector<std::shared_ptr<OracleBlock>> blocks_;
  torch::Tensor gain_, bias_;
  torch::nn::Linear head_{nullptr};
};

struct Difference {
  double loss, gradient, worst_tensor;
  std::string worst;
};

Difference compare(const RunSpec& run) {
  const auto solo = make_solo();
  const SampleReader samples = random_samples(run);
  RankModel mine(run, *solo);
  OracleModel oracle(run.model);
  auto named = oracle.by_name();
  {
    torch::NoGradGuard no_grad;
    for (Parameter* p : mine.model().parameters()) {
      torch::Tensor& twin = named.at(p->spec.name);
      // Biases and gains away from 0 and 1, so that a wrong use of them shows.
      if (p->spec.layout.shape.size() == 1) p->weight.add_(torch::randn_like(p->weight) * 0.1);
      twin.copy_(p->weight.view(twin.sizes()));
    }
  }
  for (const ParameterUnit& unit : mine.model().units()) unit.refresh_vectors();
  const double loss = mine.compute_gradients(0, 0, samples);

  const std::int64_t batch = run.train.global_batch, seq = run.train.seq_len;
  auto tokens = torch::empty({batch, seq}, torch::kLong), targets = torch::empty_like(tokens);
  for (std::int64_t i = 0; i < batch; ++i) {
    samples(i, tokens[i].data_ptr<std::int64_t>(), targets[i].data_ptr<std::int64_t>());
  }
  torch::Tensor losses;
  const torch::Tensor expected = oracle.loss(tokens, targets, losses);
  (expected + losses).backward();

  Difference d{std::abs(loss - expected.item<double>()), 0, 0, ""};
  const double added = mine.routers().aux_loss(batch * seq) + mine.routers().z_loss(batch * seq);
  EXPECT_NEAR(added, losses.item<double>(), 1e-6);
  EXPECT_EQ(added > 0, run.model.moe.experts > 0);
  // As verify compares grids: a tensor's gradient counts at least 1e-3 of the whole one, since
  // that of the keys' bias, for one, is zero but for rounding.
  std::map<std::string, double> off;
  double squares = 0, norm = 0;
  for (Parameter* p : mine.model().parameters()) {
    const torch::Tensor g = named.at(p->spec.name).grad().to(torch::kDouble);
    const torch::Tensor m = p->gradient.view(g.sizes()).to(torch::kDouble);
    off[p->spec.name] = (m - g).norm().item<double>();
    squares += std::pow(off[p->spec.name], 2);
    norm += g.square().sum().item<double>();
  }
  for (const auto& [name, distance] : off) {
    const double size = named.at(name).grad().norm().item<double>();
    const double relative = distance / std::max(size, 1e-3 * std::sqrt(norm));
    if (relative <= d.worst_tensor) continue;
    d.worst_tensor = relative;
    d.worst = name;
  }
  EXPECT_EQ(mine.model().parameters().size(), named.size());
  d.gradient = std::sqrt(squares / norm);
  return d;
}

void expect_close(const Difference& d) {
  EXPECT_LT(d.loss, 1e-5);
  EXPECT_LT(d.gradient, 1e-5);
  EXPECT_LT(d.worst_tensor, 1e-4) << d.worst;
  std::printf("loss %.2e, gradient %.2e, worst tensor %.2e (%s)\n", d.loss, d.gradient,
              d.worst_tensor, d.worst.c_str());
}

TEST(LibTorchOracle, TinyGpt) { expect_close(compare(testing::run_of(testing::tiny_gpt(), 3))); }

TEST(LibTorchOracle, TinyLlama) {
  expect_close(compare(testing::run_of(testing::tiny_llama(), 3)));
}

TEST(LibTorchOracle, NormsOfQueriesAndKeys) {
  for (ModelSpec model : {testing::tiny_llama(), testing::tiny_gpt()}) {
    for (const QkNorm norm : {QkNorm::kHead, QkNorm::kWhole}) {
      model.qk_norm = norm;
      expect_close(compare(testing::run_of(model, 3)));
    }
  }
}

TEST(LibTorchOracle, ExpertsOfAGpt) {
  ModelSpec model = testing::tiny_gpt();
  model.layers = 3;
  model.moe.experts = 8;
  model.moe.top_k = 2;
  model.moe.every = 2;
  model.moe.ffn = 37;
  model.moe.z_coef = 1e-2;
  complete_model(model);
  expect_close(compare(testing::run_of(model, 3)));
}

TEST(LibTorchOracle, ExpertsOfALlamaWithSharedOnesAndSigmoidScores) {
  ModelSpec model = testing::tiny_llama();
  model.moe.experts = 7;
  model.moe.top_k = 3;
  model.moe.first_dense = 1;
  model.moe.ffn = 29;
  model.moe.shared_experts = 2;
  model.moe.aux_coef = 0.1;
  for (const bool gated : {false, true}) {
    for (const bool biased : {false, true}) {
      for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
        model.bias = biased;
        model.moe.shared_gate = gated;
        model.moe.score = score;
        model.moe.renormalise = !gated;
        model.moe.z_coef = biased ? 1e-2 : 0;
        expect_close(compare(testing::run_of(model, 3)));
      }
    }
  }
}

TEST(LibTorchOracle, Gpt2Of124MillionParameters) {
  ModelSpec model = *find_preset("gpt2-124m");
  model.dropout = 0;
  RunSpec run = testing::run_of(model, 1);
  run.train.seq_len = 64;
  expect_close(compare(run));
}

}  // namespace
}  // namespace fourfold
