#pragma once

#include "parallel/in_flight.h"
#include "parallel/parameter.h"

namespace fourfold {

/// Matrices that one product uses: gathered over z for each use, their gradients scattered over z
/// after each (AxoNN's depth tensor parallelism: storage, not computation, is cut over z).
class WeightBlock : public ParameterGroup {
 public:
  /// Makes itself known to the context's scheduler.
  WeightBlock(const ParallelContext& context, std::vector<ParameterSpec> specs,
              std::string name = {});

  /// A gather under way.
  class Gather {
   public:
    Gather(at::Tensor block, InFlight in_flight)
        : block_(std::move(block)), in_flight_(std::move(in_flight)) {}
    /// The block, [rows(), cols()] in the compute type, once it is whole. With Gz = 1 a view of the
    /// stored weights: it must not be written to.
    at::Tensor wait() {
      in_flight_.wait();
      return block_;
    }

   private:
    at::Tensor block_;
    InFlight in_flight_;
  };
  Gather start_gather(Lane lane) const;
  /// The whole block, by the scheduler where there is one: then only as its plan says.
  at::Tensor gather() const;

  /// Where the gradient of the block is to be written by the product that makes it: [rows(),
  /// cols()] f32 and whether the product must add to what is there (Gz = 1: the stored gradient
  /// itself).
  struct GradientTarget {
    at::Tensor tensor;
    bool accumulate = false;
  };
  GradientTarget new_gradient_target();
  /// The stored gradient is that of nothing: the next one is stored as it is, not added.
  void forget_gradient() { forgotten_ = true; }
  /// The same by the scheduler where there is one; add_gradient() follows.
  GradientTarget gradient_target();

  /// A sum over z under way. The stored gradient changes in finish() alone, so the order of calls
  /// is the order of sums, however long the operations take.
  class Scatter {
   public:
    Scatter() = default;
    Scatter(at::Tensor gradients, at::Tensor part, bool adds, InFlight in_flight)
        : gradients_(std::move(gradients)),
          part_(std::move(part)),
          adds_(adds),
          in_flight_(std::move(in_flight)) {}
    void finish();
    /// False where nothing is summed: Gz = 1.
    bool travels() const { return part_.defined(); }

   private:
    at::Tensor gradients_;
    at::Tensor part_;  ///< Undefined where nothing travels.
    bool adds_ = true;
    InFlight in_flight_;
  };
  /// Takes the written gradient.
  Scatter start_scatter(const GradientTarget& target, Lane lane);
  /// The same by the scheduler where there is one: the sum is stored by its finish_scatters().
  void add_gradient(const GradientTarget& target);

 private:
  bool forgotten_ = false;
};

}  // namespace fourfold
