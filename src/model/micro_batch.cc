#include "model/micro_batch.h"

#include "device/tensors.h"
#include "layout/region.h"

namespace fourfold {

MicroBatch MicroBatch::slice(int slices, int index) const {
  const Range sequences = split_range(static_cast<std::int64_t>(samples.size()), slices, index);
  MicroBatch part = *this;
  part.tokens = rows_of(tokens, sequences.begin * seq, sequences.end * seq);
  if (targets.defined()) {
    part.targets = rows_of(targets, sequences.begin * seq, sequences.end * seq);
  }
  part.samples.assign(samples.begin() + sequences.begin, samples.begin() + sequences.end);
  return part;
}

}  // namespace fourfold
