// What travels over the data axis once a step: gradients there, updated weights back; in the closed
// form, with parameters that go alone and such that are packed, rows that do not divide.
#include "parallel/gradient_sync.h"
#include "parallel/linear.h"
#include "parallel/norm.h"
#include "tests/threads/layer_oracle.h"

namespace fourfold::testing {
namespace {

/// A value of its own for each element and data rank; sums of it are exact in f32.
float value_at(std::int64_t element, int data, int salt) {
  return static_cast<float>((element * 7 + salt * 13) % 101 * (data + 1));
}

/// Fills the parameter's stored rows (of `whole`) with what this rank contributes.
void fill(const at::Tensor& stored, const Parameter& p, int data, int salt) {
  const std::int64_t first = p.stored.dims[0].begin * stored.size(1);
  float* to = elements<float>(stored);
  for (std::int64_t i = 0; i < stored.numel(); ++i) to[i] = value_at(first + i, data, salt);
}

void expect_rows(const at::Tensor& rows, std::int64_t first_row, int times, int salt,
                 const std::string& what, float rounding = 0) {
  const float* at = elements<float>(rows);
  for (std::int64_t i = 0; i < rows.numel(); ++i) {
    const float expected =
        value_at(first_row * rows.size(1) + i, 0, salt) * static_cast<float>(times);
    ASSERT_NEAR(at[i], expected, rounding * expected) << what << ", element " << i;
  }
}

struct Layers {
  explicit Layers(const ParallelContext& context)
      : large(context, {{{"large", 331, 0}}, 211, Orientation::kNormal, true}),
        small(context, {{{"small", 23, 0}}, 7, Orientation::kTransposed, true}),
        norm(context, {"norm", 29}) {
    unit.add(large);
    unit.add(small);
    unit.add(norm.parameters());
  }
  Linear4D large, small;
  Norm4D norm;
  ParameterUnit unit;
};

void check(const GridShape& shape, bool zero, bool overlap, DType travels) {
  SCOPED_TRACE(::testing::Message()
               << "zero " << zero << ", overlap " << overlap << ", in " << dtype_name(travels));
  // Rounded before the sum and after it.
  const float rounding = travels == DType::kF32 ? 0 : 0x1p-7f;
  on_ranks(shape, [&](const ParallelContext& plain) {
    OverlapOptions options;
    options.data_reduce = options.data_gather = overlap;
    OverlapScheduler scheduler(options);
    const ParallelContext context{plain.grid, DType::kF32, zero, 7, true, &scheduler, travels};
    Layers layers(context);
    std::vector<ParameterUnit> units = {layers.unit};
    scheduler.bind(units);
    const int data = context.coords().data, ranks = context.size(Axis::kData);
    const int all = ranks * (ranks + 1) / 2;  // 1 of rank 0, 2 of rank 1 and so on.
    for (const int salt : {1, 2}) {           // Two steps.
      for (Parameter* p : units[0].parameters()) fill(p->gradient, *p, data, salt);
      GradientSync sync(context, scheduler);
      sync.passed(units[0]);
      sync.finish();
      for (Parameter* p : units[0].parameters()) {
        expect_rows(p->updated_gradient(), p->updated.dims[0].begin, all, salt,
                    "gradient of " + p->spec.name, rounding);
        p->updated_weight().copy_(p->updated_gradient());
      }
      scheduler.spread(context, units[0]);
      scheduler.settle(units[0]);
      for (Parameter* p : units[0].parameters()) {
        expect_rows(p->weight, p->stored.dims[0].begin, all, salt, "weight of " + p->spec.name,
                    rounding);
      }
      const auto& gain = layers.norm.parameters();
      const Parameter& p = gain.parameters().front();
      for (std::int64_t i = 0; i < p.block.dims[0].size(); ++i) {
        ASSERT_EQ(gain.values()[i],
                  value_at(p.block.dims[0].begin + i, 0, salt) * static_cast<float>(all));
      }
    }
  });
}

TEST(DataAxis, SumsGradientsAndSpreadsWeights) {
  for (const GridShape& shape : {GridShape(1, 1, 1, 1), GridShape(1, 1, 1, 4),
                                 GridShape(1, 1, 3, 2), GridShape(2, 1, 1, 3)}) {
    for (const bool zero : {false, true}) {
      for (const bool overlap : {false, true}) {
        for (const DType travels : {DType::kF32, DType::kBF16}) {
          check(shape, zero, overlap, travels);
        }
      }
    }
  }
}

/// The gathers of a plan wait for the weights themselves.
TEST(DataAxis, AGatherWaitsForUpdatedWeights) {
  on_ranks(GridShape(1, 1, 2, 3), [&](const ParallelContext& plain) {
    OverlapOptions options;
    options.all_gather = options.data_gather = true;
    OverlapScheduler scheduler(options);
    const ParallelContext context{plain.grid, DType::kF32, true, 7, true, &scheduler};
    Layers layers(context);
    std::vector<ParameterUnit> units = {layers.unit};
    scheduler.bind(units);
    const std::vector<std::string> order = {"large.weight", "small.weight", "large.weight"};
    for (const int salt : {3, 4, 5}) {
      for (Parameter* p : units[0].parameters()) {
        fill(p->weight, *p, 0, salt);
        // What the others update is old.
        const at::Tensor mine = p->updated_weight().clone();
        p->weight.fill_(-1);
        p->updated_weight().copy_(mine);
      }
      scheduler.spread(context, units[0]);
      scheduler.begin(order);
      expect_rows(layers.large.weights().gather(), 0, 1, salt, "large");
      expect_rows(layers.small.weights().gather(), 0, 1, salt, "small");
      expect_rows(layers.large.weights().gather(), 0, 1, salt, "large again");
    }
  });
}

}  // namespace
}  // namespace fourfold::testing
