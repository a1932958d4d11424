#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ckpt/state.h"
#include "model/transformer.h"
#include "optim/gradient_norm.h"
#include "parallel/overlap_scheduler.h"
#include "policy/overlap_plan.h"
#include "spec/run_spec.h"
#include "train/routers.h"

namespace fourfold {

/// Writes the seq inputs and the seq targets of a sample, by its global number, which is the only
/// data state of a run. Called from the rank's thread.
using SampleReader =
    std::function<void(std::int64_t sample, std::int64_t* inputs, std::int64_t* targets)>;

/// What one optimizer step did; the same on every rank.
struct StepResult {
  double loss = 0;       ///< Mean cross-entropy of the step's tokens, in nats.
  double grad_norm = 0;  ///< Before clipping.
  double lr = 0;
  bool skipped = false;  ///< Gradients were not finite and the policy is to skip.
  double aux_loss = 0;   ///< What the routers' balance added to the loss, of all layers.
  double z_loss = 0;     ///< What their z-loss added.
};

/// One rank's share of a run: its part of the model, its optimizer state, and a step.
class RankModel {
 public:
  /// Collective over `world`, whose size is the grid's; both outlive this.
  RankModel(const RunSpec& run, Communicator& world);

  /// Trains on samples [step · global_batch, (step + 1) · global_batch). Collective. Throws Error
  /// of kind kNumerics, naming the first bad tensor, where loss or gradients are not finite and the
  /// policy is to stop; parameters are then as they were.
  StepResult train_step(std::int64_t step, std::int64_t first_sample, const SampleReader& samples) {
    return apply_gradients(step, compute_gradients(step, first_sample, samples));
  }

  /// The first half of train_step: sums the gradients of a step and returns its mean loss. Then
  /// Parameter::updated_gradient() holds the whole sum. The state (state()) does not change.
  double compute_gradients(std::int64_t step, std::int64_t first_sample,
                           const SampleReader& samples);
  /// The second half: the update, from that loss and those gradients.
  StepResult apply_gradients(std::int64_t step, double loss);

  /// Mean cross-entropy of samples [0, count) without dropout, rounded up to whole micro-batches of
  /// all (z, data) ranks by samples that count nothing. Collective.
  double evaluate(std::int64_t count, const SampleReader& samples);

  /// Until the weights of the last update are whole on all ranks: before anything but a step, an
  /// evaluation or a checkpoint reads them, or anything writes them. Collective.
  void settle() { overlap_.settle(); }

  /// The state of this rank for checkpoints, as views. Another rank's weights are no part of it.
  std::vector<StateTensor> state();
  /// After a load wrote through `state`, this rank's state() (which settle() must come before, once
  /// the model has trained): checks or makes the bf16 weights,
  /// spreads them, restores the counter. Throws Error of kind kData where a weight is not the
  /// rounded master.
  void restored(std::span<const StateTensor> state, std::int64_t updates);
  /// Of a model with experts.
  Routers& routers() { return routers_; }
  /// All parameters of the model, in the order of the forward pass, those that this rank has
  /// nothing of (experts of others) too.
  const std::vector<ParameterSpec>& specs() const { return specs_; }
  /// The place of a parameter among them.
  std::size_t index_of(const Parameter& p) const { return index_.at(p.spec.name); }

  /// Optimizer updates done (steps that were not skipped): the moments' bias correction counts
  /// them.
  std::int64_t updates() const { return updates_; }

  Transformer& model() { return model_; }
  const ParallelContext& context() const { return context_; }
  const RunSpec& run() const { return run_; }

 private:
  /// The samples of this rank in micro-batch `index` of a step: their numbers within the step.
  std::vector<std::int64_t> sample_numbers(std::int64_t index) const;
  MicroBatch make_batch(std::int64_t first_sample, std::vector<std::int64_t> numbers,
                        const SampleReader& samples) const;
  RankModel(const RunSpec& run, Communicator& world, const ModelLayers& layers);
  void bind_optimizer();
  /// A parameter's tensors as checkpoints see them; its data where this rank has some.
  void add_state(std::size_t index, std::vector<StateTensor>& state);
  GradientNorm gradient_norm();
  /// Whether the step may be applied; skips or throws by policy.
  bool finite(double loss, const GradientNorm& norm, std::int64_t step) const;

  const RunSpec& run_;
  Communicator& world_;
  ProcessGrid grid_;
  OverlapScheduler overlap_;
  std::vector<ParameterSpec> specs_;
  std::vector<std::string> names_;  ///< Of specs_.
  std::map<std::string, std::size_t> index_;
  OverlapPlan plan_;
  ParallelContext context_;
  Transformer model_;
  std::vector<Parameter*> held_;  ///< By place in specs_; null where the rank has nothing of it.
  Routers routers_;
  std::vector<OptimizerTensor> optimizer_;
  std::int64_t updates_ = 0;
};

}  // namespace fourfold
