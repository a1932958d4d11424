#pragma once

#include <memory>

#include "base/async.h"
#include "layout/layer_specs.h"
#include "parallel/weight_block.h"

namespace fourfold {

/// Token embedding, with learned positions if asked for. Vocabulary over x, hidden over y, stored
/// over z. Each rank looks up the tokens of its part of the vocabulary (zeros for the others); the
/// sum over x is the embedding. Its dual is the identity: all x ranks get the same gradient and
/// each adds the rows it holds.
class Embedding4D {
 public:
  Embedding4D(const ParallelContext& context, const EmbeddingSpec& spec);

  /// Row r of the result [rows, hidden of this rank] is tokens[r]'s row of the table plus the row
  /// of position first_position + r mod seq.
  Async<at::Tensor> forward(const at::Tensor& tokens, std::int64_t seq,
                            std::int64_t first_position = 0) const;
  void backward(const at::Tensor& tokens, std::int64_t seq, const at::Tensor& d_output);

  WeightBlock& table() { return table_; }
  WeightBlock* positions() { return positions_.get(); }

 private:
  const ParallelContext& context_;
  WeightBlock table_;
  std::unique_ptr<WeightBlock> positions_;
};

}  // namespace fourfold
