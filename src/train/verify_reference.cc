#include "train/verify_reference.h"

#include "base/philox.h"

namespace fourfold {

RunSpec with_grid(const RunSpec& run, GridShape grid, int accumulation) {
  RunSpec changed = run;
  changed.parallel.grid = grid;
  changed.train.micro_batch = run.train.global_batch / (grid.z * grid.data * accumulation);
  return changed;
}

SampleReader random_samples(const RunSpec& run) {
  const PhiloxKey key = philox_key(run.seed, RandomPurpose::kDataOrder);
  const auto vocab = static_cast<std::uint32_t>(run.model.vocab);
  const std::int64_t seq = run.train.seq_len;
  return [=](std::int64_t sample, std::int64_t* inputs, std::int64_t* targets) {
    for (std::int64_t i = 0; i <= seq; ++i) {
      const auto word =
          philox4x32({static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32),
                      static_cast<std::uint32_t>(i), 0},
                     key)[0];
      const std::int64_t token = word % vocab;
      if (i < seq) inputs[i] = token;
      if (i > 0) targets[i - 1] = token;
    }
  };
}

VerifyReference make_reference(const RunSpec& run, int steps, const SampleReader& samples,
                               int accumulation) {
  RunSpec one = with_grid(run, GridShape(1, 1, 1, 1), accumulation);
  one.parallel.expert = one.parallel.expert_chunks = 1;
  const auto solo = make_solo();
  RankModel model(one, *solo);
  VerifyReference reference;
  for (int step = 0; step < steps; ++step) {
    VerifyReference::StepState& at = reference.steps.emplace_back();
    // One rank's regions are whole tensors, so its state is the full state.
    for (Parameter* p : model.model().parameters()) {
      at.state[p->spec.name + "@" + kKindMaster] = p->master.clone();
      at.state[p->spec.name + "@" + kKindExpAvg] = p->exp_avg.clone();
      at.state[p->spec.name + "@" + kKindExpAvgSq] = p->exp_avg_sq.clone();
      at.state[p->spec.name + "@" + kKindWeight] = p->weight.clone();
    }
    at.memory = model.routers().memory();
    model.routers().impose(nullptr, &at.routing);
    const StepResult result = model.train_step(step, step * run.train.global_batch, samples);
    reference.losses.push_back(result.loss);
    at.tally = model.routers().tally();
    at.aux_loss = result.aux_loss;
    at.z_loss = result.z_loss;
    for (Parameter* p : model.model().parameters()) {
      at.gradients[p->spec.name] = p->gradient.clone();
    }
  }
  return reference;
}

}  // namespace fourfold
