#pragma once

#include <vector>

#include "parallel/linear.h"
#include "parallel/vector_block.h"
#include "parallel/weight_block.h"

namespace fourfold {

/// The parameters that are used, updated and gathered together: the embedding, a block, the end of
/// the model. What a unit refers to belongs to the layers.
class ParameterUnit {
 public:
  void add(WeightBlock& weights) {
    add_parameters(weights);
    matrices_.push_back(&weights);
  }
  void add(VectorBlock& vectors) {
    add_parameters(vectors);
    vectors_.push_back(&vectors);
  }
  void add(Linear4D& linear) {
    add(linear.weights());
    if (linear.bias()) add(*linear.bias());
  }

  /// In the order of the forward pass.
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  const std::vector<WeightBlock*>& matrices() const { return matrices_; }

  /// Before the first backward of a step. A matrix's gradient has its old value until then.
  void forget_gradients() const {
    for (WeightBlock* m : matrices_) m->forget_gradient();
    for (VectorBlock* v : vectors_) {
      for (Parameter& p : v->parameters()) p.gradient.zero_();
    }
  }
  /// Completes the vectors' gradients over z; after the last backward of a step.
  void finish_gradients() const {
    for (VectorBlock* v : vectors_) v->finish_gradient();
  }
  /// Fetches the vectors' values anew; after stored weights changed.
  void refresh_vectors() const {
    for (VectorBlock* v : vectors_) v->refresh();
  }

 private:
  void add_parameters(ParameterGroup& group) {
    for (Parameter& p : group.parameters()) parameters_.push_back(&p);
  }

  std::vector<Parameter*> parameters_;
  std::vector<WeightBlock*> matrices_;
  std::vector<VectorBlock*> vectors_;
};

}  // namespace fourfold
