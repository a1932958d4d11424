// What routers do to a step: experts that get all tokens or none, balance, counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>

#include "tests/train/moe_runs.h"

namespace fourfold::testing {
namespace {

/// What some steps of training gave, the same on every rank.
struct Trained {
  std::vector<double> losses, norms, aux;
  std::vector<RouterTally> tally;    ///< Of the last step.
  std::vector<RouterMemory> memory;  ///< After it.
};

using Prepare = void (*)(RankModel& model);

Trained train(RankModel& model, int steps) {
  const RunSpec& run = model.run();
  Trained trained;
  for (int step = 0; step < steps; ++step) {
    const StepResult r = model.train_step(step, step * run.train.global_batch, random_samples(run));
    trained.losses.push_back(r.loss);
    trained.norms.push_back(r.grad_norm);
    trained.aux.push_back(r.aux_loss);
  }
  trained.tally = model.routers().tally();
  trained.memory = model.routers().memory();
  return trained;
}

/// Of rank 0; the others' router memory must be the same bits.
Trained train_on_ranks(const RunSpec& run, int steps, Prepare prepare) {
  std::vector<Trained> all(static_cast<std::size_t>(run.parallel.grid.size()));
  run_thread_ranks(run.parallel.grid.size(), {}, [&](Communicator& world) {
    set_intra_op_threads(1);
    RankModel model(run, world);
    prepare(model);
    all[static_cast<std::size_t>(world.rank())] = train(model, steps);
  });
  for (const Trained& other : all) {
    for (std::size_t block = 0; block < other.memory.size(); ++block) {
      EXPECT_EQ(other.memory[block].bias, all[0].memory[block].bias);
      EXPECT_EQ(other.memory[block].tokens, all[0].memory[block].tokens);
      EXPECT_EQ(other.tally[block].tokens, all[0].tally[block].tokens);
    }
    EXPECT_EQ(other.losses, all[0].losses);
    EXPECT_EQ(other.norms, all[0].norms);
  }
  return all[0];
}

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

RunSpec loss_free_run(int experts = 5) {
  RunSpec run = run_of(with_experts(tiny_gpt(), experts), 12);
  run.model.moe.balance = Balance::kLossFree;
  run.model.moe.bias_rate = 0.02;
  return run;
}

/// Experts `first` and the one after it get all tokens.
template <int first>
void prefer(RankModel& model) {
  std::vector<RouterMemory> memory = model.routers().memory();
  for (RouterMemory& m : memory) {
    std::fill(m.bias.begin(), m.bias.end(), -10.0f);
    for (const int e : {first, first + 1}) m.bias.at(static_cast<std::size_t>(e)) = 10;
  }
  model.routers().set_memory(std::move(memory));
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance) << "step " << i;
}

void expect_all_tokens_at(const RunSpec& run, Prepare prepare, int first) {
  constexpr int kTrained = 3;
  set_intra_op_threads(1);
  for (const ExpertCase& c : {ExpertCase{{1, 1, 1, 1}, 1, 1}, ExpertCase{{1, 1, 2, 1}, 2, 3},
                              ExpertCase{{3, 1, 2, 1}, 2, 2}, ExpertCase{{2, 1, 2, 2}, 4, 1},
                              ExpertCase{{1, 2, 1, 4}, 4, 3}, ExpertCase{{1, 1, 4, 1}, 2, 1}}) {
    SCOPED_TRACE(c.name());
    const auto solo = make_solo();
    const RunSpec one_run = with_grid(run, {}, c.accumulation);
    RankModel one_model(one_run, *solo);
    prepare(one_model);
    const Trained one = train(one_model, kTrained);
    for (const int chunks : {1, c.expert == 2 ? 2 : 1}) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        RunSpec placed = on(run, c);
        placed.parallel.expert_chunks = chunks;
        placed.memory.recompute = recompute;
        const Trained many = train_on_ranks(placed, kTrained, prepare);
        expect_near(many.losses, one.losses, 1e-5);
        expect_near(many.norms, one.norms, 1e-4);
        const double tokens = static_cast<double>(run.train.global_batch * run.train.seq_len);
        for (std::size_t e = 0; e < many.tally[0].tokens.size(); ++e) {
          const bool chosen = static_cast<int>(e) == first || static_cast<int>(e) == first + 1;
          EXPECT_EQ(many.tally[0].tokens[e], chosen ? tokens : 0);
        }
      }
    }
  }
}

TEST(MoeRouting, TwoExpertsGetAllTokens) {
  expect_all_tokens_at(loss_free_run(), prefer<0>, 0);
  expect_all_tokens_at(loss_free_run(), prefer<3>, 3);
}

TEST(MoeRouting, ExpertsWithoutTokensHaveNoGradient) {
  // One that stores experts whole, one in shards, which come as sums of whole gradients.
  for (const ExpertCase& c : {ExpertCase{{2, 1, 2, 1}, 2, 3}, ExpertCase{{1, 1, 4, 1}, 2, 3}}) {
    const RunSpec run = on(loss_free_run(), c);
    run_thread_ranks(4, {}, [&](Communicator& world) {
      set_intra_op_threads(1);
      RankModel model(run, world);
      prefer<0>(model);
      model.compute_gradients(0, 0, random_samples(run));
      for (Parameter* p : model.model().parameters()) {
        if (p->spec.expert < 0 || p->updated_gradient().numel() == 0) continue;
        const double largest = p->updated_gradient().abs().max().item<double>();
        EXPECT_EQ(largest > 0, p->spec.expert < 2) << p->spec.name;
      }
    });
  }
}

/// All probabilities equal.
void flatten(RankModel& model) {
  for (Parameter* p : model.model().parameters()) {
    if (p->spec.role == ParameterRole::kRouter) p->weight.zero_();
  }
}

/// Most tokens prefer expert 0: the router's input gets a mean of 1, and the expert's row one above
/// 0.
void skew(RankModel& model) {
  for (Parameter* p : model.model().parameters()) {
    const bool mean = p->spec.name.ends_with("post_attention_layernorm.bias");
    const bool router = p->spec.role == ParameterRole::kRouter && p->stored.dims[0].begin == 0;
    for (at::Tensor& t : std::vector<at::Tensor>{p->weight, p->master}) {
      if (t.numel() == 0) continue;
      if (mean) t.fill_(1);
      if (router) t.view({p->stored.dims[0].size(), -1}).select(0, 0).fill_(0.06);
    }
  }
  for (const ParameterUnit& unit : model.model().units()) unit.refresh_vectors();
}

TEST(MoeRouting, ASkewedRouterHasTheLargerAuxiliaryLoss) {
  for (const BalanceScope scope : {BalanceScope::kSequence, BalanceScope::kMicrostep}) {
    RunSpec run = run_of(with_experts(tiny_gpt()), 12);
    run.model.moe.balance_scope = scope;
    for (const ExpertCase& c : {ExpertCase{}, ExpertCase{{2, 1, 2, 1}, 2}}) {
      const Trained flat = train_on_ranks(on(run, c), 1, flatten);
      const Trained skewed = train_on_ranks(on(run, c), 1, skew);
      // Of equal probabilities it is the coefficient, whatever is chosen.
      EXPECT_NEAR(flat.aux[0], run.model.moe.aux_coef * run.model.layers, 1e-7);
      EXPECT_GT(skewed.aux[0], 1.1 * flat.aux[0]);
    }
  }
}

TEST(MoeRouting, TheStepsScopeTakesTheCountsOfTheStepBefore) {
  RunSpec run = run_of(with_experts(tiny_gpt()), 12);
  run.model.moe.balance_scope = BalanceScope::kStep;
  run.optimizer.lr = 0;
  const Trained one = train_on_ranks(on(run, {}), 1, skew);
  const Trained two = train_on_ranks(on(run, {}), 2, skew);
  // Before anything was counted all experts have the same share.
  EXPECT_NEAR(one.aux[0], run.model.moe.aux_coef * run.model.layers, 1e-7);
  EXPECT_GT(two.aux[1], 1.05 * two.aux[0]);
  EXPECT_GT(sum(one.tally[0].tokens), 0);
  for (std::size_t e = 0; e < one.tally[0].tokens.size(); ++e) {
    EXPECT_EQ(static_cast<double>(one.memory[0].tokens[e]), one.tally[0].tokens[e]);
  }
}

TEST(MoeRouting, TheBiasMovesAgainstTheLoad) {
  const RunSpec run = loss_free_run(7);
  for (const ExpertCase& c : {ExpertCase{}, ExpertCase{{2, 1, 2, 1}, 2, 3}}) {
    const Trained trained = train_on_ranks(on(run, c), 1, [](RankModel&) {});
    for (std::size_t block = 0; block < trained.memory.size(); ++block) {
      const std::vector<double>& tokens = trained.tally[block].tokens;
      const std::vector<float>& bias = trained.memory[block].bias;
      const double mean = sum(tokens) / static_cast<double>(tokens.size());
      double total = 0;
      for (std::size_t e = 0; e < tokens.size(); ++e) {
        total += bias[e];
        for (std::size_t other = 0; other < tokens.size(); ++other) {
          if (tokens[e] <= mean || tokens[other] >= mean) continue;
          EXPECT_NEAR(bias[other] - bias[e], 2 * run.model.moe.bias_rate, 1e-7);
        }
      }
      EXPECT_NEAR(total, 0, 1e-6);
      EXPECT_NE(bias, std::vector<float>(bias.size()));
    }
  }
}

/// With a bias from step to step the load becomes more even than without.
TEST(MoeRouting, TheBiasEvensTheLoad) {
  RunSpec run = loss_free_run();
  run.optimizer.lr = 0;
  run.model.moe.bias_rate = 0.005;
  const auto largest = [](const Trained& t) {
    return *std::max_element(t.tally[0].tokens.begin(), t.tally[0].tokens.end());
  };
  const Trained before = train_on_ranks(run, 1, skew);
  const Trained after = train_on_ranks(run, 200, skew);
  EXPECT_LT(largest(after), 0.8 * largest(before));
}

/// With two ranks a node and a bias beyond all scores every token stays on its node.
TEST(MoeRouting, ALocalBiasKeepsTokensOnTheirNode) {
  RunSpec run = on(run_of(with_experts(tiny_gpt()), 8), {{1, 1, 4, 1}, 4});
  run.model.moe.experts = 8;
  run.parallel.local_expert_bias = 2;
  for (const int ranks_on_node : {0, 2}) {
    run.parallel.ranks_on_node = ranks_on_node;
    std::mutex mutex;
    std::int64_t near = 0, far = 0;
    run_thread_ranks(4, {}, [&](Communicator& world) {
      set_intra_op_threads(1);
      RankModel model(run, world);
      RoutingTable own;
      model.routers().impose(nullptr, &own);
      model.compute_gradients(0, 0, random_samples(run));
      const std::lock_guard lock(mutex);
      for (const auto& [place, sequence] : own.sequences) {
        // Two experts a rank, so four a node.
        for (const int e : sequence.chosen) ++(e / 4 == world.rank() / 2 ? near : far);
      }
    });
    EXPECT_GT(near, 0);
    EXPECT_EQ(far == 0, ranks_on_node == 2);
  }
}

TEST(MoeRouting, CountsAreOfEachTokenOnce) {
  RunSpec run = loss_free_run();
  const auto assignments =
      static_cast<double>(run.train.global_batch * run.train.seq_len * run.model.moe.top_k);
  for (const ExpertCase& c : {ExpertCase{{1, 1, 1, 1}, 1, 3}, ExpertCase{{2, 2, 2, 1}, 2, 3}}) {
    std::vector<std::vector<double>> counted;
    for (const Recompute recompute : {Recompute::kNone, Recompute::kMlp, Recompute::kFull}) {
      RunSpec placed = on(run, c);
      placed.memory.recompute = recompute;
      const Trained trained = train_on_ranks(placed, 2, [](RankModel&) {});
      for (const RouterTally& tally : trained.tally) EXPECT_EQ(sum(tally.tokens), assignments);
      counted.push_back(trained.tally[1].tokens);
      EXPECT_EQ(counted.back(), counted.front());
    }
  }
}

TEST(MoeRouting, EvaluationDoesNotCount) {
  RunSpec run = on(loss_free_run(), {{2, 1, 2, 1}, 2, 1});
  run_thread_ranks(4, {}, [&](Communicator& world) {
    set_intra_op_threads(1);
    RankModel model(run, world);
    const Trained trained = train(model, 2);
    EXPECT_GT(model.evaluate(13, random_samples(run)), 0);
    for (std::size_t block = 0; block < trained.tally.size(); ++block) {
      EXPECT_EQ(model.routers().tally()[block].tokens, trained.tally[block].tokens);
      EXPECT_EQ(model.routers().tally()[block].entropy, trained.tally[block].entropy);
      EXPECT_EQ(model.routers().memory()[block].bias, trained.memory[block].bias);
      EXPECT_EQ(model.routers().memory()[block].tokens, trained.memory[block].tokens);
    }
  });
}

TEST(MoeRouting, EvaluationIsTheSameOnEveryGrid) {
  set_intra_op_threads(1);
  RunSpec run = run_of(with_experts(tiny_gpt()), 12);
  const auto solo = make_solo();
  RankModel one(run, *solo);
  for (const std::int64_t samples : {1, 5, 13}) {
    const double expected = one.evaluate(samples, random_samples(run));
    for (const ExpertCase& c : {ExpertCase{{2, 1, 2, 1}, 2}, ExpertCase{{1, 1, 2, 2}, 4}}) {
      const RunSpec split = on(run, c);
      run_thread_ranks(split.parallel.grid.size(), {}, [&](Communicator& world) {
        set_intra_op_threads(1);
        RankModel model(split, world);
        EXPECT_NEAR(model.evaluate(samples, random_samples(run)), expected, 1e-6);
      });
    }
  }
}

}  // namespace
}  // namespace fourfold::testing
