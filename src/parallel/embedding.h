#pragma once

#include <memory>

#include "base/async.h"
#include "layout/layer_specs.h"
#include "parallel/stream_rows.h"
#include "parallel/weight_block.h"

namespace fourfold {

/// Token embedding, with learned positions if asked for. Vocabulary over x, hidden over y, stored
/// over z. Each rank looks up the tokens of its part of the vocabulary (zeros for the others); the
/// sum over x is the embedding. Its dual is the identity: all x ranks get the same gradient and
/// each adds the rows it holds; where the residual stream is cut over x they gather it first.
class Embedding4D {
 public:
  Embedding4D(const ParallelContext& context, const EmbeddingSpec& spec);

  /// Row r of [rows, hidden of this rank], of which the result is the stream's rows on this rank,
  /// is tokens[r]'s row of the table plus the row of position first_position + r mod seq.
  Async<at::Tensor> forward(const at::Tensor& tokens, std::int64_t seq,
                            std::int64_t first_position = 0) const;
  Async<void> backward(const at::Tensor& tokens, std::int64_t seq, const at::Tensor& d_output);

  WeightBlock& table() { return table_; }
  WeightBlock* positions() { return positions_.get(); }

 private:
  void add_table_gradient(const at::Tensor& tokens, const at::Tensor& d_rows);
  void add_position_gradient(std::int64_t seq, const at::Tensor& d_rows);

  const ParallelContext& context_;
  StreamRows stream_;
  WeightBlock table_;
  std::unique_ptr<WeightBlock> positions_;
};

}  // namespace fourfold
