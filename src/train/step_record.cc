#include "train/step_record.h"

namespace fourfold {

JsonLine to_json(const StepRecord& r) {
  JsonLine line;
  line.add("step", r.step).add("loss", r.loss);
  if (r.experts) {
    line.add("aux_loss", r.experts->aux_loss)
        .add("z_loss", r.experts->z_loss)
        .add("max_over_mean", r.experts->max_over_mean);
  }
  line.add("grad_norm", r.grad_norm)
      .add("lr", r.lr)
      .add("tokens", r.tokens)
      .add("tokens_per_second", r.tokens_per_second)
      .add("step_seconds", r.step_seconds)
      .add("mfu", r.mfu)
      .add("checkpoint_seconds", r.checkpoint_seconds);
  if (r.skipped) line.add("skipped", true);
  if (r.experts && r.experts->forced) line.add("forced_balance", true);
  return line;
}

JsonLine to_json(const ValidationRecord& r) {
  return JsonLine().add("step", r.step).add("val_loss", r.val_loss).add("tokens", r.tokens);
}

JsonLine to_json(const CheckpointRecord& r) {
  return JsonLine()
      .add("step", r.step)
      .add("checkpoint", r.name)
      .add("bytes", r.bytes)
      .add("copy_seconds", r.copy_seconds)
      .add("write_seconds", r.write_seconds)
      .add("held_seconds", r.held_seconds)
      .add("cpu_seconds", r.cpu_seconds);
}

}  // namespace fourfold
