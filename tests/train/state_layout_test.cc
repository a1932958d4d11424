// What is known of a rank's state without a model against the state that the model itself lists.
#include <gtest/gtest.h>

#include "comm/thread_world.h"
#include "policy/held_region.h"
#include "policy/model_layers.h"
#include "tests/train/test_models.h"
#include "train/rank_model.h"

namespace fourfold {
namespace {

void compare(RunSpec run, const GridShape& shape, bool zero) {
  run.parallel.grid = shape;
  run.memory.zero = zero ? 1 : 0;
  const auto layouts = parameters_of(model_layers(run.model, shape, head_layout_of(run)));
  run_thread_ranks(shape.size(), {}, [&](Communicator& world) {
    RankModel model(run, world);
    const Grid grid(shape, run.parallel.order);
    const Coords at = grid.coords(WorldRank(world.rank()));
    std::vector<StateTensor> masters;
    for (StateTensor& t : model.state()) {
      if (t.kind == kKindMaster) masters.push_back(t);
    }
    ASSERT_EQ(masters.size(), layouts.size());
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      const HeldRegion held = held_region(layouts[i].layout, grid, at, zero);
      EXPECT_EQ(layouts[i].name, masters[i].name);
      EXPECT_EQ(layouts[i].layout.shape, masters[i].shape) << layouts[i].name;
      EXPECT_EQ(held.region, model.model().parameters()[i]->updated) << layouts[i].name;
      EXPECT_EQ(held.region, masters[i].region) << layouts[i].name;
      EXPECT_EQ(held.replica, masters[i].replica) << layouts[i].name;
      EXPECT_EQ(held.replicas, masters[i].replicas) << layouts[i].name;
      EXPECT_EQ(held.replica_set, masters[i].replica_set) << layouts[i].name;
    }
  });
}

TEST(StateLayout, IsThatOfTheModelOnEveryGrid) {
  using testing::run_of;
  ModelSpec untied = testing::tiny_llama();
  untied.vocab = 997;  // Large enough that the head gathers hidden states where y > 1.
  ModelSpec biased = testing::tiny_llama();
  biased.bias = biased.tie_embeddings = true;
  for (const ModelSpec& model : {testing::tiny_gpt(), testing::tiny_llama(), untied, biased}) {
    for (const GridShape& grid :
         {GridShape(1, 1, 1, 1), GridShape(2, 1, 2, 1), GridShape(1, 3, 1, 2),
          GridShape(6, 1, 1, 1), GridShape(3, 2, 1, 1)}) {
      const bool fits = model.kv_heads % grid.x == 0 || grid.x % model.kv_heads == 0;
      if (!fits) continue;
      for (const bool zero : {false, true}) compare(run_of(model, 2), grid, zero);
    }
  }
}

}  // namespace
}  // namespace fourfold
